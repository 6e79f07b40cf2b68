use std::time::Duration;

use super::RetryBudget;

/// The retries that are granted at once.
fn spent(budget: &RetryBudget) -> u32 {
    (0..10_000)
        .take_while(|_| budget.withdraw())
        .count()
        .try_into()
        .unwrap()
}

async fn after(seconds: f64) {
    tokio::time::advance(Duration::from_secs_f64(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn new_budget_has_five_seconds_of_its_own() {
    assert_eq!(spent(&RetryBudget::default()), 15);
    assert_eq!(spent(&RetryBudget::new(0.5, 0)), 0);
}

#[tokio::test(start_paused = true)]
async fn ten_calls_pay_for_a_retry_and_a_second_for_three() {
    let budget = RetryBudget::default();
    spent(&budget);
    for (calls, seconds, retries) in [
        (9, 0.0, 0),
        (1, 0.0, 1),
        (95, 0.0, 9),
        (5, 2.0, 7),
        (0, 0.3, 0),
        (0, 0.1, 1),
    ] {
        (0..calls).for_each(|_| budget.deposit());
        after(seconds).await;
        assert_eq!(spent(&budget), retries, "{calls} calls, {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn short_steps_of_time_add_up() {
    let budget = RetryBudget::new(0.0, 1);
    spent(&budget);
    let mut retries = 0;
    for _ in 0..1_000 {
        after(0.01).await;
        retries += spent(&budget);
    }
    assert_eq!(retries, 10);
}

#[tokio::test(start_paused = true)]
async fn long_success_saves_no_more_than_five_seconds() {
    let budget = RetryBudget::default();
    (0..100_000).for_each(|_| budget.deposit());
    after(86_400.0).await;
    assert_eq!(spent(&budget), 40);
}

#[tokio::test(start_paused = true)]
async fn clones_are_one_budget_and_odd_figures_are_none() {
    let budget = RetryBudget::new(f32::NAN, 1);
    assert_eq!(spent(&budget.clone()), 5);
    assert_eq!(spent(&budget), 0);
    let budget = RetryBudget::new(-1.0, 0);
    budget.deposit();
    assert_eq!(spent(&budget), 0);
    let endless = RetryBudget::new(f32::INFINITY, u32::MAX);
    (0..10).for_each(|_| endless.deposit());
    assert_eq!(spent(&endless), 10_000);
}
