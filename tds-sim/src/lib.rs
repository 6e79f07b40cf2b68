//! The transport data service, simulated from its contract and audited.
