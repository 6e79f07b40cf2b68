library(httr2)
library(processx)
library(testthat)

program <- process$new(Sys.getenv("TDS_SIM", "tds-sim"), stdout = "|")
while (length(line <- program$read_output_lines(1)) == 0) program$poll_io(5000)
sim <- jsonlite::fromJSON(line)

send <- function(request) request |> req_error(is_error = \(answer) FALSE) |> req_perform()

control <- function(path, ...) {
  done <- request(paste0(sim$admin_url, path)) |> req_body_json(list(...)) |> send()
  stopifnot(resp_status(done) == 200)
}

token <- function() {
  reply <- request(paste0(sim$auth_url, "/auth/realms/ServiceConnect/protocol/openid-connect/token")) |>
    req_body_form(grant_type = "client_credentials", client_id = sim$client_id, client_secret = sim$client_secret) |>
    send()
  resp_body_json(reply)$access_token
}

get <- function(token = NULL) {
  call <- request(paste0(sim$base_url, "/v1/live/bus"))
  if (!is.null(token)) call <- req_auth_bearer_token(call, token)
  send(call)
}

test_that("each error is as the contract says, and the service saw each call", {
  control("/reset", part = "ledger")
  good <- token()
  expect_equal(resp_body_json(get(good))$name, "bus")
  expect_match(resp_body_string(get()), "no Authorization header found")
  expect_match(resp_body_string(get("wrong")), "invalid token")
  control("/roles", role = "none")
  expect_match(resp_body_string(get(token())), "Missing required realm role")

  for (limit in list(list(connections = 0, 416), list(rate = 0, 423), list(quota = "0/60s", 429))) {
    do.call(control, c("/set", limit[1]))
    expect_equal(resp_status(get(good)), limit[[2]])
    control("/reset", part = "settings")
  }

  control("/faults", fault = "503@/v1/live/*")
  expect_equal(resp_status(get(good)), 503)
  control("/faults", fault = "reset-body")
  expect_error(get(good))

  seen <- request(paste0(sim$admin_url, "/ledger")) |> req_url_query(path = "/v1/live/bus", wait = 9) |> send()
  seen <- resp_body_json(seen, simplifyVector = TRUE)
  expect_equal(seen$summary$token_posts, 2)
  expect_equal(seen$arrivals$status, c(200, 401, 401, 401, 416, 423, 429, 503, 200))
})

program$kill()
