//! Tower layers that keep connections and requests inside a service's limits, by proof.
