//! What the retry of a call costs, between the decision and the attempt.

use crate::retry::budget::{Account, Withdrawal};
use crate::retry::verdict::Way;

/// The price of the retry that is waited for, and whose it is if the one under way succeeds.
///
/// A clone is of a call that has not begun, and holds nothing.
#[derive(Debug, Default)]
pub(super) struct Paid {
    /// Comes back by itself where the wait is dropped.
    price: Option<Withdrawal>,
    comes_back: bool,
    lent: Option<Account>,
}

// === impl Paid ===

impl Paid {
    /// Notes what the retry will cost that is waited for now.
    pub(super) fn owe(&mut self, price: Withdrawal, way: Way) {
        self.price = Some(price);
        self.comes_back = way == Way::Reused;
    }

    /// Notes that an attempt begins.
    pub(super) fn begin(&mut self) {
        let account = self.price.take().and_then(Withdrawal::spend);
        self.lent = account.filter(|_| self.comes_back);
    }

    /// Notes that it succeeded.
    pub(super) fn succeeded(&mut self) {
        if let Some(account) = self.lent.take() {
            account.refund();
        }
    }
}

impl Clone for Paid {
    fn clone(&self) -> Self {
        Self::default()
    }
}
