//! One rate limit and one token for several processes behind one address, by leases in Redis.
