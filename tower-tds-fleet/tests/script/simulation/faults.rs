//! What breaks, and what that costs.
