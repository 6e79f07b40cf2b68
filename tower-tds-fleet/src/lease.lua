-- The fleet's account of one quota. See DESIGN.md for what it proves, `account.rs` of tower-tds-limits
-- for the same rules in one process. Times are whole microseconds of this server's clock.
--
-- KEYS: the account. ARGV: run, limits, keep, member, channel, want, then one event each:
--   p ID WORD [HINT]  proven: the answer is there. WORD: a(ccepted), r(efused: 423), q(uota: 429), n(othing)
--   l ID MICROS       lost: counted, if at all, within this time
--   u ID              unsent
--   k ID              kept: still in flight
-- Gives granted, the first of their numbers, micros until to ask again (-1: when told), micros of
-- the pause, live, rung, micros until the account opens, and the numbers of `k` that are not known.

local run, terms, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])
local member, channel, want = ARGV[4], ARGV[5], tonumber(ARGV[6])
local floor, max, min = math.floor, math.max, math.min

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = redis.call('GET', KEYS[1])
local s = stored and cmsgpack.unpack(stored)

-- Of the limits: requests, what a proof is live for, the even spacing without and with its guard,
-- whether counters are kept within, the burst of a bucket (-1 none, -2 automatic), that of the pace (0
-- none), and how long a new account grants nothing.
local most, hold, even, space, counter_kept, bursts, paces, recover =
  string.match(terms, '^(%d+) (%d+) (%d+) (%d+) (%d) (%-?%d+) (%d+) (%d+)$')
most, hold, even, space = tonumber(most), tonumber(hold), tonumber(even), tonumber(space)
bursts, paces = tonumber(bursts), tonumber(paces)
local silence, clean = 1002000, 600000000

if not s or s.run ~= run then
  -- Another memory, or none: whatever was granted before has to be over.
  s = { run = run, terms = terms, last = now, opens = now + recover, seq = now, open = 0, due = 0,
    empty = 0, usual = 0, answered = 0, careful = 0, rung = 0, evidence = 0, down = 0,
    climbs = now + clean, clean = clean, climbed = 0, silent = 0, paused = 0, trial = 0,
    next = 0, granted = {}, ends = {}, past = {}, queue = {} }
end
if s.terms ~= terms then
  return redis.error_reply('FLEETTERMS ' .. s.terms)
end
now = max(now, s.last)
s.last = now
local past, granted, ends, queue = s.past, s.granted, s.ends, s.queue

-- What the rung keeps within: 0 proven, 1 strict, 2 serial, 3.. slowed.
local function keeps()
  local limit, counter, burst = most, counter_kept == '1', bursts
  if s.rung > 0 then
    counter = true
    burst = s.rung == 1 and ((burst < 0 or burst > 10) and 10 or burst) or 0
  end
  for _ = 3, s.rung do
    limit = max(limit - floor((limit + 4) / 5), 1)
  end
  return limit, counter, burst
end
local limit, counter, burst = keeps()

local function step(rung)
  s.rung = rung
  s.careful = 40 + s.open
  limit, counter, burst = keeps()
end

-- As `limits`' own: -1 no bucket, -2 automatic.
local function allowed()
  local allowed = burst
  if burst == -2 then
    allowed = max(floor(s.usual / space) + 5, 9)
  end
  local c = s.careful
  local careful = c == 0 and allowed or c <= 10 and 10 or c <= 20 and 2 or c <= 30 and 1 or 0
  return min(allowed, most - 1, careful)
end

local function gone(id)
  local since = granted[id]
  if since then
    granted[id], ends[id] = nil, nil
    s.open = s.open - 1
  end
  return since
end

-- One is proven to have been counted by `at`.
local function prove(at)
  past[#past + 1] = max(at, past[#past] or 0)
  if burst ~= -1 then
    local drains = space
    if s.careful > 0 or burst == 0 then
      s.careful = max(s.careful - 1, 0)
      drains = allowed() == 0 and space + 1000 or space
    end
    s.empty = max(s.empty, at) + drains
  end
end

local function expire()
  local over = {}
  s.next = math.huge
  for id, at in pairs(ends) do
    if at <= now then over[#over + 1] = id else s.next = min(s.next, at) end
  end
  table.sort(over, function(a, b) return ends[a] < ends[b] end)
  for _, id in ipairs(over) do
    local at = ends[id]
    gone(id)
    prove(at)
    if s.trial == id then s.trial = -1 end
  end
  if s.next == math.huge then s.next = 0 end
end
if s.next > 0 and s.next <= now then expire() end

local function ends_at(id, at)
  ends[id] = at
  s.next = s.next == 0 and at or min(s.next, at)
end

local function hush() s.silent = max(s.silent, now + silence) end

local function hear(word, since, hint)
  if word == 'a' then
    s.evidence = max(s.evidence - 1, 0)
    if now >= s.climbs then
      s.climbs = now + s.clean
      if s.rung > 0 then
        s.climbed = 1
        step(s.rung - 1)
      end
    end
  elseif word == 'r' then
    hush()
    if since > s.down then
      s.evidence = s.evidence + 100
      if s.evidence >= 250 then
        s.clean = s.climbed == 1 and min(s.clean * 2, 86400000000) or clean
        s.evidence, s.climbed, s.down, s.climbs = 0, 0, now, now + s.clean
        step(min(s.rung + 1, 18))
      end
    end
  elseif word == 'q' then
    s.paused = max(s.paused, now + hint)
    s.trial = -1
  end
end

local unknown, i = {}, 7
while ARGV[i] do
  local what, id = ARGV[i], tonumber(ARGV[i + 1])
  i = i + 2
  if what == 'p' then
    local word, hint = ARGV[i], tonumber(ARGV[i + 1])
    i = i + 2
    local since = gone(id)
    if since then
      prove(now)
      s.answered = max(s.answered, since)
      local took, pace = now - since, max(floor(s.usual / 16), 500)
      s.usual = took > s.usual and min(s.usual + pace, took) or max(s.usual - pace, took)
      if s.trial == id then s.trial = word == 'a' and 0 or -1 end
    end
    -- What is told twice, or of another memory, is heeded, but no evidence.
    hear(word, since or 0, hint)
  elseif what == 'l' then
    if granted[id] then ends_at(id, now + tonumber(ARGV[i])) end
    if s.trial == id then s.trial = -1 end
    i = i + 1
  elseif what == 'u' then
    if gone(id) then s.due = s.due - even end
    if s.trial == id then s.trial = -1 end
  else
    if granted[id] then ends_at(id, now + keep) else unknown[#unknown + 1] = id end
  end
end

-- What has long been unproven and was overtaken is counted no more by an automatic bucket; while
-- nothing at all is answered, a few more try.
local function overtaken(room)
  local long = max(s.usual * 8, 1000000)
  local young, unproven, oldest = min(s.answered, now - long), 0, now
  for _, since in pairs(granted) do
    if since >= young then
      unproven, oldest = unproven + 1, min(oldest, since)
    end
  end
  local longer = now - oldest - long
  if longer > 0 then
    local probes = longer < 2500000 and 1 or 1 + 2 ^ min(floor((longer - 2500000) / 500000), 20)
    room = min(room + probes, most - 1)
  end
  return room, unproven
end

-- Two periods are all that any rule asks for.
local old = 0
while past[old + 1] and past[old + 1] < now - 2 * hold do old = old + 1 end
if old > 0 then
  local n = #past
  for at = 1, n do past[at] = past[at + old] end
end

-- The earliest time at which `more` fit, if nothing else happens; nil while that depends on a proof.
local function opens_at(more)
  if s.trial > 0 or s.trial < 0 and more > 1 then return nil end
  local at, n = max(now, s.opens, s.silent, s.paused), #past
  -- The window: the last of those that have to be back.
  local before = n
  while before > 0 and past[before] > now - hold do before = before - 1 end
  local back = s.open + n - before + more - limit
  if back > n - before then return nil end
  if back > 0 then at = max(at, past[before + back] + hold) end
  if s.rung == 0 and paces > 0 then
    at = max(at, s.due - (paces - more) * even)
  end
  -- The bucket: all that is unproven falls now.
  if burst ~= -1 then
    local room, unproven = allowed(), s.open
    if burst == -2 and unproven + more > room + 1 then room, unproven = overtaken(room) end
    room = room - unproven - more + 1
    if room < 0 then return nil end
    at = max(at, s.empty - room * space)
  end
  -- The counter: `previous * (1 - x) + current`, for every start of its windows.
  local over = s.open + more + n - limit
  if counter and over > 0 then
    local from, behind, one, other = 1, 1, 1, 1
    while from <= n and past[from] <= at - 2 * hold do from = from + 1 end
    behind, one, other = from, from, from
    while other <= n do
      -- The next start that matters: a proof, or a period after one.
      local phi = past[other] + hold
      if one <= n and past[one] < phi then
        phi, one = past[one], one + 1
      else
        other = other + 1
      end
      if phi > at then break end
      if phi > at - hold then
        while behind <= n and past[behind] < phi do behind = behind + 1 end
        while past[from] < phi - hold do from = from + 1 end
        -- In the window before, and what is left of the limit for it.
        local b, room = behind - from, limit - s.open - more - n + behind - 1
        if room < 0 then
          at = phi + hold
        elseif room < b then
          at = max(at, phi + hold - floor(hold * room / b))
        end
      end
    end
  end
  return at
end

local first = s.seq + 1
local function grant()
  s.seq = s.seq + 1
  granted[s.seq] = now
  ends_at(s.seq, now + keep)
  s.open = s.open + 1
  s.due = (s.due + 2000 >= now and s.due or now) + even
  if s.trial < 0 then s.trial = s.seq end
end

-- Each member that waits stands in the queue once: MEMBER, CHANNEL, when it was told to ask, when it asked.
-- Who was told and has not come is passed over, and stays first.
local function is_late(one) return one[3] > 0 and one[3] + 50000 < now end
while queue[1] and queue[1][4] + 3000000 < now do table.remove(queue, 1) end
local place, rank = #queue + 1, 1
for at, one in ipairs(queue) do
  if one[1] == member then
    place = at
    break
  end
  if not is_late(one) then rank = rank + 1 end
end
local mine = table.remove(queue, place)
local wait = 0
if want > 0 then
  local at = opens_at(rank)
  if at and at <= now then
    repeat
      grant()
      want = want - 1
      at = want > 0 and #queue == 0 and opens_at(1)
    until not at or at > now
    if want > 0 then
      -- The next one is for the others first.
      place = #queue + 1
      at = opens_at(place)
    end
  end
  if want > 0 then
    table.insert(queue, place, { member, channel, at or 0, now })
    wait = at and at - now or -1
  end
end

-- Those who can be told now, or told better.
rank = 0
for _, one in ipairs(queue) do
  if not is_late(one) then
    rank = rank + 1
    if one[1] ~= member and (one[3] == 0 or one[3] > now) then
      local opens = opens_at(rank)
      if not opens or one[3] > 0 and opens + 1000 > one[3] then break end
      one[3] = opens
      redis.call('PUBLISH', one[2], math.ceil(opens - now))
    end
  end
end

redis.call('SET', KEYS[1], cmsgpack.pack(s))
local live = s.open
for at = #past, 1, -1 do
  if past[at] <= now - hold then break end
  live = live + 1
end
return { s.seq - first + 1, first, math.ceil(wait), max(s.paused - now, 0), live, s.rung, max(s.opens - now, 0), unpack(unknown) }
