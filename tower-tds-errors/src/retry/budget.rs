//! The retry budget of a host, so that retries never make an overload worse.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;

use http::Uri;
use tokio::time::Instant;

use self::debts::{Ledger, Rates};
use super::state::Costs;
use crate::clock;
use crate::give_up::GiveUp;

mod debts;

/// What the debts are built of; the model test puts loom's in its place.
mod sync {
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
}

/// Bounds the retries to each host by a share of the requests to it.
///
/// Each request to a host earns it a share of a retry, and each second some; what is unused is kept
/// up to a burst, and a retry costs one. So a host that fails for all gets few requests more than
/// without retries, and one that fails for some has them mended. The default is ten retries for a
/// hundred requests, one a second, and ten at once.
///
/// Retries of requests that never left cost nothing. The one that follows a refused token costs its price
/// if the next token is refused, too, and is not made where there is none left: so a host that refuses
/// all tokens gets few requests more, and a token that was revoked is replaced for all who used it.
///
/// # Clone
///
/// Clones are one budget: give one to several layers, and they share it.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use tower_tds_errors::{Budget, RetryLayer};
///
/// let hundred = NonZeroU32::new(100).unwrap();
/// let layer = RetryLayer::new().budget(Budget::new(60, hundred).per_second(0));
/// # drop(layer);
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    rates: Rates,
    ledger: Arc<Ledger>,
}

/// What the retries of one call cost: the price of the last of them. A clone is of a call that has
/// not begun, and holds nothing.
#[derive(Debug, Default)]
pub(super) struct Spending {
    price: Option<Price>,
    /// By whom, and for which host, a cure is paid if it is none.
    owed: Option<(Budget, Box<str>)>,
}

/// The price of one retry, which comes back when this is dropped unspent.
#[derive(Debug)]
pub(super) struct Price {
    budget: Budget,
    host: Box<str>,
    pub(super) is_spent: bool,
    comes_back: bool,
}

// === impl Budget ===

impl Budget {
    /// So many `retries` for each `requests` to a host, one more a second, and ten at once.
    #[must_use]
    pub fn new(retries: u32, requests: NonZeroU32) -> Self {
        Self::of(Rates {
            deposit: retries,
            price: requests,
            per_second: 1,
            burst: TEN,
        })
    }

    /// Sets how many retries time alone allows, for programs that make few requests. With none, a
    /// host is forgiven when it has had no retry for an hour.
    #[must_use]
    pub fn per_second(self, retries: u32) -> Self {
        Self::of(Rates {
            per_second: retries,
            ..self.rates
        })
    }

    /// Sets how many unused retries are kept, and so how many a host gets at once.
    #[must_use]
    pub fn burst(self, retries: NonZeroU32) -> Self {
        Self::of(Rates {
            burst: retries,
            ..self.rates
        })
    }

    /// Notes a request.
    #[inline]
    pub(super) fn deposit(&self, uri: &Uri) {
        // All a request costs while no host has had a retry lately.
        if self.ledger.has_debts() {
            self.deposit_at(uri, clock::now());
        }
    }

    /// Takes the price of a retry, if it is there.
    pub(super) fn withdraw_at(&self, authority: &str, now: Instant) -> Option<Price> {
        let host = host(authority);
        let lent = self.ledger.borrow(&host, &self.rates, now);
        lent.then(|| Price {
            budget: self.clone(),
            host: host.into(),
            is_spent: false,
            comes_back: false,
        })
    }

    #[cold]
    fn deposit_at(&self, uri: &Uri, now: Instant) {
        let worth = self.rates.deposit();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        self.ledger.repay(&host(authority), worth, &self.rates, now);
    }

    fn of(rates: Rates) -> Self {
        Self {
            rates,
            ledger: Arc::new(Ledger::new()),
        }
    }
}

/// The SRE book's share for a client ("Handling Overload": 10 %).
impl Default for Budget {
    fn default() -> Self {
        Self::new(10, HUNDRED)
    }
}

// === impl Price ===

impl Drop for Price {
    fn drop(&mut self) {
        if !self.is_spent {
            let Budget { rates, ledger } = &self.budget;
            ledger.repay(&self.host, rates.price(), rates, clock::now());
        }
    }
}

// === impl Spending ===

impl Spending {
    /// Takes the price of the retry that is waited for from now on, if the host bears it.
    pub(super) fn pay(
        &mut self,
        budget: Option<&Budget>,
        authority: &str,
        costs: Costs,
        now: Instant,
    ) -> Result<(), GiveUp> {
        // What was lent for a retry that failed is spent.
        if let Some(price) = &mut self.price {
            price.comes_back = false;
        }
        if let (Costs::Lent | Costs::Paid | Costs::Later, Some(budget)) = (costs, budget) {
            let mut price = budget.withdraw_at(authority, now).ok_or(GiveUp::Budget)?;
            price.comes_back = costs == Costs::Lent;
            if costs == Costs::Later {
                // Back at once: all who were refused together are cured, however many they are.
                self.owed = Some((budget.clone(), price.host.clone()));
            } else {
                self.price = Some(price);
            }
        }
        Ok(())
    }

    /// Pays for a cure that was none, as far as the host has something left.
    pub(super) fn not_cured(&mut self, now: Instant) {
        let owed = self.owed.take();
        if let Some(mut price) = owed.and_then(|(budget, host)| budget.withdraw_at(&host, now)) {
            price.is_spent = true;
        }
    }

    /// Notes that an attempt begins.
    pub(super) fn sent(&mut self) {
        if let Some(price) = &mut self.price {
            price.is_spent = true;
        }
    }

    /// Notes that it succeeded.
    pub(super) fn succeeded(&mut self) {
        if let Some(mut price) = self.price.take() {
            price.is_spent = !price.comes_back;
        }
    }
}

impl Clone for Spending {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Host and port, in lower case (RFC 9110, section 4.2.3); one name for all URIs without any.
fn host(authority: &str) -> Cow<'_, str> {
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.is_empty() {
        Cow::Borrowed("-")
    } else if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

const HUNDRED: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// One request of each call in flight at a typical client, or ten seconds of the default rate.
const TEN: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

#[cfg(test)]
mod tests;
