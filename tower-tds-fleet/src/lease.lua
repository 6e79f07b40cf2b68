-- The fleet's account of one quota. See DESIGN.md for what it proves, `account.rs` of tower-tds-limits
-- for the same rules in one process. Times are whole microseconds of this server's clock.
--
-- KEYS: the account. ARGV: run, limits, keep, member (a whole number), channel, want, then one event each:
--   p ID WORD [HINT]  proven: the answer is there. WORD: a(ccepted), r(efused: 423), q(uota: 429), n(othing)
--   l ID MICROS       lost: counted, if at all, within this time
--   u ID              unsent
--   k ID              kept: still in flight
-- Gives granted, the first of their numbers, micros until to ask again (-1: when told), micros of
-- the pause, live, rung, micros until the account opens, and the numbers of `k` that are not known.
-- The channels of all members are called alike, but for the member at the end.

local run, terms, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])
local member, channels, want = tonumber(ARGV[4]), string.match(ARGV[5], '^(.-)%d*$'), tonumber(ARGV[6])
local floor, max, min = math.floor, math.max, math.min

-- Many numbers as one string: a table of them takes several times as long to pack.
local function packed(list, first, last)
  local text = ''
  for at = first, last, 1000 do
    local some = min(last - at + 1, 1000)
    text = text .. struct.pack('<' .. string.rep('d', some), unpack(list, at, at + some - 1))
  end
  return text
end

local function numbers(text)
  local all = nil
  for at = 1, #text, 8000 do
    local some = min((#text - at + 1) / 8, 1000)
    local part = { struct.unpack('<' .. string.rep('d', some), text, at) }
    -- The last is where it has stopped.
    part[#part] = nil
    if all then
      for _, number in ipairs(part) do all[#all + 1] = number end
    end
    all = all or part
  end
  return all or {}
end

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
    next = 0, past = '', leases = '', who = '', told = '', asked = '' }
end
if s.terms ~= terms then
  return redis.error_reply('FLEETTERMS ' .. s.terms)
end
now = max(now, s.last)
s.last = now
-- The proofs in their order, and the leases: since when, and until when if nothing is heard.
local past, granted, ends = numbers(s.past), {}, {}
local leases, known = numbers(s.leases), #past
for at = 1, #leases, 3 do
  local id = leases[at]
  granted[id], ends[id] = leases[at + 1], leases[at + 2]
end

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

-- The proofs that count: two periods are all that any rule asks for; and the first of the last period.
local n, old = #past, 1
while old <= n and past[old] < now - 2 * hold do old = old + 1 end
local young = old
while young <= n and past[young] <= now - hold do young = young + 1 end

-- The earliest time after `at` at which the counter lets `open` be counted at once: `previous * (1 - x) +
-- current`, for every start of its windows. Those that matter begin at a proof, or a period after one.
local function counter_opens_at(at, open)
  local past, hold, n, late = past, hold, n, at - hold
  -- Of the limit, what is left for the window before.
  local room = limit - open - (n - young + 1)
  local from = old
  for one = young, n do
    local start = past[one]
    while past[from] < start - hold do from = from + 1 end
    if (start - late) * (one - from) > room * hold then
      at = start + hold - (room > 0 and floor(hold * room / (one - from)) or 0)
      late = at - hold
    end
    room = room + 1
  end
  local to = old
  for one = old, n do
    local start = past[one] + hold
    if start > at then break end
    while to <= n and past[to] < start do to = to + 1 end
    room = limit - open - (n - to + 1)
    if start > late and (start - late) * (to - one) > room * hold then
      at = start + hold - (room > 0 and floor(hold * room / (to - one)) or 0)
      late = at - hold
    end
  end
  return at
end

-- The earliest time at which `more` fit, if nothing else happens; nil while that depends on a proof.
-- Whatever is later than `by` may be said to be earlier than it is.
local function opens_at(more, by)
  if s.trial > 0 or s.trial < 0 and more > 1 then return nil end
  local at = max(now, s.opens, s.silent, s.paused)
  -- The window: the last of those that have to be back.
  local back = s.open + n - young + 1 + more - limit
  if back > n - young + 1 then return nil end
  if back > 0 then at = max(at, past[young + back - 1] + hold) end
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
  if counter and at < by and s.open + more + n - old + 1 > limit then
    at = counter_opens_at(at, s.open + more)
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

-- Each member that waits stands in the queue once: who it is, when it was told to ask, when it asked.
-- Who was told and has not come is passed over, and stays first.
local function without(text, at) return string.sub(text, 1, 8 * at - 8) .. string.sub(text, 8 * at + 1) end
local function with(text, at, number)
  return string.sub(text, 1, 8 * at - 8) .. struct.pack('<d', number) .. string.sub(text, 8 * at - 7)
end
while #s.asked > 0 and struct.unpack('<d', s.asked) + 3000000 < now do
  s.who, s.told, s.asked = without(s.who, 1), without(s.told, 1), without(s.asked, 1)
end
local mine, due = struct.pack('<d', member), numbers(s.told)
local found = string.find(s.who, mine, 1, true)
while found and found % 8 ~= 1 do found = string.find(s.who, mine, found + 1, true) end
local place = found and (found + 7) / 8 or #due + 1
if found then
  s.who, s.asked = without(s.who, place), without(s.asked, place)
  table.remove(due, place)
end
local late, rank = now - 50000, 1
for at = 1, place - 1 do
  if due[at] == 0 or due[at] >= late then rank = rank + 1 end
end
local wait = 0
if want > 0 then
  local at = opens_at(rank, math.huge)
  if at and at <= now then
    repeat
      grant()
      want = want - 1
      at = want > 0 and #due == 0 and opens_at(1, math.huge)
    until not at or at > now
    if want > 0 and #due > 0 then
      -- The next one is for the others first.
      place = #due + 1
      at = opens_at(place, math.huge)
    end
  end
  if want > 0 then
    s.who, s.asked = with(s.who, place, member), with(s.asked, place, now)
    table.insert(due, place, at or 0)
    wait = at and at - now or -1
  end
end

-- Those who can be told now, or told better.
rank = 0
for at, told in ipairs(due) do
  if told == 0 or told >= late then
    rank = rank + 1
    if (told == 0 or told > now) and not (want > 0 and at == place) then
      local better = told > 0 and told - 1000 or math.huge
      local opens = opens_at(rank, better)
      if not opens or opens > better then break end
      due[at] = opens
      local who = struct.unpack('<d', s.who, 8 * at - 7)
      redis.call('PUBLISH', channels .. string.format('%.0f', who), math.ceil(opens - now))
    end
  end
end
s.told = packed(due, 1, #due)

s.past = string.sub(s.past, 8 * old - 7) .. packed(past, known + 1, n)
leases = {}
for id, since in pairs(granted) do
  local at = #leases
  leases[at + 1], leases[at + 2], leases[at + 3] = id, since, ends[id]
end
s.leases = packed(leases, 1, #leases)
redis.call('SET', KEYS[1], cmsgpack.pack(s))
local live = s.open + n - young + 1
return { s.seq - first + 1, first, math.ceil(wait), max(s.paused - now, 0), live, s.rung, max(s.opens - now, 0), unpack(unknown) }
