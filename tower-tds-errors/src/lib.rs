//! Tower layers that say what an answer means and retry what is worth it.
