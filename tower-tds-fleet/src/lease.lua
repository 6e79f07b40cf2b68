-- The fleet's account of one quota. See DESIGN.md for what it proves, `account.rs` of tower-tds-limits
-- for the same rules in one process. Times are whole microseconds of this server's clock.
--
-- KEYS: the account. ARGV: limits, keep, member (a whole number), what the channels of all members begin with,
-- want, the member's share (0: none; -1: it leaves), the number of this question, that of the member's last
-- that was answered, the server that answered it (0: none), then one event each:
--   p ID WORD [HINT]  proven: the answer is there. WORD: a(ccepted), r(efused: 423), q(uota: 429), n(othing)
--   l ID MICROS       lost: counted, if at all, within this time
--   u ID              unsent
--   k ID              kept: still in flight
-- Gives granted, the first of their numbers, micros until to ask again (-1: when told), micros of
-- the pause, live, rung, micros until the account opens, whether the share is agreed, this server, and the
-- numbers of `k` that are not known.

local terms, keep = ARGV[1], tonumber(ARGV[2])
local member, channels, want, share = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local question, heard, known = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local floor, max, min = math.floor, math.max, math.min

-- Many numbers as one string, which is ten times as fast as to pack a table of them.
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
    part[some + 1] = nil
    if all then
      for _, number in ipairs(part) do all[#all + 1] = number end
    end
    all = all or part
  end
  return all or {}
end

-- Another process of the server has another memory.
local run = tonumber(string.sub(string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'), 1, 13), 16)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The account: its limits, its numbers by these names, and lists. The first three are so in every version.
local names = { 'run', 'last', 'back', 'opens', 'seq', 'due', 'empty', 'usual', 'answered', 'careful', 'rung', 'evidence',
  'down', 'climbs', 'clean', 'climbed', 'silent', 'paused', 'pauses', 'told', 'trial', 'tried', 'next' }
local is_account, account = pcall(cmsgpack.unpack, redis.call('GET', KEYS[1]) or '')
local s, its_past, its_leases, its_queue, its_shares, its_former = nil, '', '', '', '', ''
-- What is no account is none.
if is_account and type(account) == 'table' and account[1] then
  s = {}
  local values = numbers(account[2])
  for at = 1, #names do s[names[at]] = values[at] end
end

-- Of the limits: requests, what a proof is live for, the even spacing without and with its guard,
-- whether counters are kept within, the burst of a bucket (-1 none, -2 automatic), that of the pace (0
-- none), the rung to begin on, and how long a new account grants nothing. Before them, the version of this
-- account.
local most, hold, even, space, counter_kept, bursts, paces, rung, recover =
  string.match(terms, '^2 (%d+) (%d+) (%d+) (%d+) (%d) (%-?%d+) (%d+) (%d+) (%d+)$')
most, hold, even, space = tonumber(most), tonumber(hold), tonumber(even), tonumber(space)
bursts, paces, recover = tonumber(bursts), tonumber(paces), tonumber(recover)
local silence, clean = 1002000, 600000000

if s and account[1] ~= terms then
  -- Other limits, or another version: theirs as long as anybody keeps them, who is heard of each half minute.
  recover = max(recover, tonumber(string.match(account[1], '(%d+)$')) or 0)
  if s.run == run and now + s.back < s.last + max(recover, 65000000) then
    return redis.error_reply('FLEETTERMS ' .. account[1])
  end
  s = nil
end
if s then its_former = account[7] end
if s and s.run == run then
  its_past, its_leases, its_queue, its_shares = account[3], account[4], account[5], account[6]
else
  -- Another memory, or none: whatever was granted before has to be over. What was heard only makes careful.
  local before = s or { last = now, rung = tonumber(rung), clean = clean, climbed = 0, paused = 0, pauses = 0, told = 0, trial = 0 }
  if s then its_former = its_former .. packed({ s.run }, 1, 1) end
  -- By its own clock.
  local function left(at) return now + max(at - before.last, 0) end
  s = { run = run, last = now, back = 0, opens = now + recover, seq = now, due = 0, empty = 0, usual = 0, answered = 0,
    careful = 0, rung = before.rung, evidence = 0, down = 0, climbs = now + before.clean, clean = before.clean,
    climbed = before.climbed, silent = 0, paused = left(before.paused), pauses = before.pauses, told = left(before.told),
    trial = before.trial == 0 and 0 or -1, tried = 0, next = 0 }
end
-- This server's clock may be put back: time goes on from where it was.
s.back = max(s.back, s.last - now)
now = now + s.back
s.last = now
-- A member comes from a server that this one does not follow: it was away meanwhile, and knows nothing of
-- what was granted there.
if known ~= 0 and known ~= run then
  local former, follows = numbers(its_former), false
  for at = 1, #former do follows = follows or former[at] == known end
  if not follows then
    s.opens = max(s.opens, now + recover)
    former[#former + 1] = known
    its_former = packed(former, max(#former - 7, 1), #former)
  end
end
-- The proofs in their order. The leases in theirs, five numbers each: its own, since when, until when if
-- nothing is heard, whose it is, in which question it was asked for. One that is gone is since -1.
local past, leases = numbers(its_past), numbers(its_leases)
local proofs, open, any_gone = #past, #leases / 5, false

-- Those who may go on without the store: who, its share, when it was last heard. Who has not been heard of for as
-- long as a lease lives may do so from some time later on, and for ten minutes; nobody else has its share
-- then. A share that is too much is none.
local withheld, away, shared = 0, 0, max(share, 0)
local shares, others = {}, numbers(its_shares)
for at = 1, #others, 3 do
  local who, its, last = others[at], others[at + 1], others[at + 2]
  if who ~= member and last + 660000000 >= now then
    local size = #shares
    shares[size + 1], shares[size + 2], shares[size + 3] = who, its, last
    shared = shared + its
    if last + keep < now then withheld, away = withheld + its, away + 1 end
  end
end
local agreed = share > 0 and shared <= most
if agreed then
  local size = #shares
  shares[size + 1], shares[size + 2], shares[size + 3] = member, share, now
end
if away > 0 then space = math.ceil(hold / max(most - withheld, 1)) end

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
  return max(limit - withheld, 0), counter, burst
end
local limit, counter, burst = keeps()

local function step(rung)
  s.rung = rung
  s.careful = 40 + open
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
  return max(min(allowed, most - 1, careful) - away, 0)
end

-- Where it stands, if it is not gone.
local function find(id)
  local low, high = 1, #leases / 5
  while low < high do
    local middle = floor((low + high) / 2)
    if leases[5 * middle - 4] < id then low = middle + 1 else high = middle end
  end
  local at = 5 * low - 4
  return leases[at] == id and leases[at + 1] >= 0 and at
end

local function gone(at)
  local since = leases[at + 1]
  leases[at + 1], leases[at + 2] = -1, math.huge
  open, any_gone = open - 1, true
  return since
end

local function unsent(at)
  if s.trial == leases[at] then s.trial = -1 end
  gone(at)
  s.due = s.due - even
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
  for at = 1, #leases, 5 do
    local ends = leases[at + 2]
    if ends <= now then over[#over + 1] = at else s.next = min(s.next, ends) end
  end
  table.sort(over, function(a, b) return leases[a + 2] < leases[b + 2] end)
  for _, at in ipairs(over) do
    if s.trial == leases[at] then s.trial = -1 end
    prove(leases[at + 2])
    gone(at)
  end
  if s.next == math.huge then s.next = 0 end
end
if s.next > 0 and s.next <= now then expire() end

local function ends_at(at, ends)
  leases[at + 2] = ends
  s.next = s.next == 0 and ends or min(s.next, ends)
end

local function hush() s.silent = max(s.silent, now + silence) end

local function hear(word, since, hint, tried)
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
    -- As in one process: a minute at most until one tries, and longer each time where no time is told. What
    -- was sent before the pause says nothing new but a longer time, and nothing while one tries.
    if s.trial == 0 or tried then
      s.pauses = hint == 0 and min(max(2 * s.pauses, 1000000), 60000000) or 0
      s.paused = now + (hint == 0 and s.pauses or min(hint, 60000000))
      s.told = max(now + hint, s.paused)
      s.trial = -1
    elseif s.trial < 0 then
      s.paused = max(s.paused, now + min(hint, 60000000))
      s.told = max(s.told, now + hint)
    end
  end
end

-- The answers to some of its questions were lost: it has never heard of what was granted there.
if heard < question - 1 then
  for at = 1, #leases, 5 do
    local asked = leases[at + 4]
    if leases[at + 3] == member and asked > heard and asked < question and leases[at + 1] >= 0 then unsent(at) end
  end
end

local unknown, i = {}, 10
while ARGV[i] do
  local what, id = ARGV[i], tonumber(ARGV[i + 1])
  local at = find(id)
  i = i + 2
  if what == 'p' then
    local word, hint = ARGV[i], tonumber(ARGV[i + 1])
    i = i + 2
    local since, tried = at and gone(at), s.trial == id
    if since then
      prove(now)
      s.answered = max(s.answered, since)
      local took, pace = now - since, max(floor(s.usual / 16), 500)
      s.usual = took > s.usual and min(s.usual + pace, took) or max(s.usual - pace, took)
      if tried then
        s.trial = word == 'a' and 0 or -1
        if word == 'a' then s.told, s.pauses = 0, 0 end
      end
    end
    -- What is told twice, or of another memory, is heeded, but no evidence.
    if since or word ~= 'q' then hear(word, since or 0, hint, tried) end
  elseif what == 'l' then
    if at then ends_at(at, now + tonumber(ARGV[i])) end
    if s.trial == id then s.trial = -1 end
    i = i + 1
  elseif what == 'u' then
    if at then unsent(at) end
  elseif at then
    ends_at(at, now + keep)
  else
    unknown[#unknown + 1] = id
  end
end

-- What has long been unproven and was overtaken is counted no more by an automatic bucket; while
-- nothing at all is answered, a few more try.
local function overtaken(room)
  local long = max(s.usual * 8, 1000000)
  local young, unproven, oldest = min(s.answered, now - long), 0, now
  for at = 2, #leases, 5 do
    local since = leases[at]
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
local n = #past
local function first_after(at, low)
  local high = n + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if past[middle] <= at then low = middle + 1 else high = middle end
  end
  return low
end
local old = first_after(now - 2 * hold - 1, 1)
local young = first_after(now - hold, old)

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
  if s.trial > 0 and now < s.tried + 30000000 then return nil end
  if s.trial ~= 0 and more > 1 then return nil end
  local at = max(now, s.opens, s.silent, s.trial ~= 0 and s.paused or 0)
  -- The window: the last of those that have to be back.
  local back = open + n - young + 1 + more - limit
  if back > n - young + 1 then return nil end
  if back > 0 then at = max(at, past[young + back - 1] + hold) end
  if s.rung == 0 and paces > 0 then
    at = max(at, s.due - (paces - more) * even)
  end
  -- The bucket: all that is unproven falls now.
  if burst ~= -1 then
    local room, unproven = allowed(), open
    if burst == -2 and unproven + more > room + 1 then room, unproven = overtaken(room) end
    room = room - unproven - more + 1
    if room < 0 then return nil end
    at = max(at, s.empty - room * space)
  end
  if counter and at < by and open + more + n - old + 1 > limit then
    at = counter_opens_at(at, open + more)
  end
  return at
end

local first = s.seq + 1
local function grant()
  s.seq = s.seq + 1
  local at = #leases + 1
  leases[at], leases[at + 1], leases[at + 2], leases[at + 3], leases[at + 4] = s.seq, now, 0, member, question
  ends_at(at, now + keep)
  open = open + 1
  s.due = (s.due + 2000 >= now and s.due or now) + even
  if s.trial ~= 0 then s.trial, s.tried = s.seq, now end
end

-- Each member that waits stands in the queue once: who it is, when it was told to ask, when it asked, and
-- how long its way is. Who was told and has not come in time is passed over, and stays first.
local queue = numbers(its_queue)
local length = #queue / 4
local who, due, asked, way = {}, {}, {}, {}
for at = 1, length do
  who[at], due[at], asked[at], way[at] = queue[4 * at - 3], queue[4 * at - 2], queue[4 * at - 1], queue[4 * at]
end
local function is_late(at) return due[at] > 0 and due[at] + max(50000, 2 * way[at]) < now end
local function leave(at)
  length = length - 1
  table.remove(who, at)
  table.remove(asked, at)
  return table.remove(due, at), table.remove(way, at)
end
for at = length, 1, -1 do
  if asked[at] + 3000000 < now then leave(at) end
end
local place, rank, mine = length + 1, 1, 0
for at = 1, length do
  if who[at] == member then
    place = at
    local told, before = leave(at)
    -- From when it was told to ask until it came.
    local came = told > 0 and told <= now and min(now - told, 1000000) or before
    mine = max(came, before / 2)
    break
  end
  if not is_late(at) then rank = rank + 1 end
end
local wait = 0
if want > 0 then
  local at = opens_at(rank, math.huge)
  if at and at <= now then
    repeat
      grant()
      want = want - 1
      at = want > 0 and length == 0 and opens_at(1, math.huge)
    until not at or at > now
    if want > 0 and length > 0 then
      -- The next one is for the others first.
      place = length + 1
      at = opens_at(place, math.huge)
    end
  end
  if want > 0 then
    length = length + 1
    table.insert(who, place, member)
    table.insert(due, place, at or 0)
    table.insert(asked, place, now)
    table.insert(way, place, mine)
    wait = at and at - now or -1
  end
end

-- Those who can be told now, or told better.
rank = 0
for at = 1, length do
  if not is_late(at) then
    rank = rank + 1
    local told = due[at]
    if who[at] ~= member and (told == 0 or told > now) then
      local better = told > 0 and told - 1000 or math.huge
      local opens = opens_at(rank, better)
      if not opens or opens > better then break end
      due[at] = opens
      redis.call('PUBLISH', channels .. string.format('%.0f', who[at]), math.ceil(opens - now))
    end
  end
end

local live = open + n - young + 1
if any_gone then
  local left, size = {}, 0
  for at = 1, #leases, 5 do
    if leases[at + 1] >= 0 then
      for field = 0, 4 do left[size + 1 + field] = leases[at + field] end
      size = size + 5
    end
  end
  leases = left
end
for at = 1, length do
  queue[4 * at - 3], queue[4 * at - 2], queue[4 * at - 1], queue[4 * at] = who[at], due[at], asked[at], way[at]
end
local values = {}
for at = 1, #names do values[at] = s[names[at]] end
redis.call('SET', KEYS[1], cmsgpack.pack({ terms, packed(values, 1, #names),
  -- Proofs are only added at the end.
  string.sub(its_past, 8 * old - 7) .. packed(past, max(old, proofs + 1), n),
  packed(leases, 1, #leases), packed(queue, 1, 4 * length), packed(shares, 1, #shares), its_former }))
local reply = { s.seq - first + 1, first, math.ceil(wait), max(s.told - now, 0), live, s.rung, max(s.opens - now, 0),
  agreed and 1 or 0, run }
for _, id in ipairs(unknown) do reply[#reply + 1] = id end
return reply
