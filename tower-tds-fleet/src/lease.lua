-- The fleet's account of one quota. See DESIGN.md for what it proves, `account.rs` of tower-tds-limits
-- for the same rules in one process. Times are whole microseconds of this server's clock.
--
-- KEYS: the account. ARGV: limits, keep, member (a whole number), what the channels of all members begin with,
-- want, the member's share (0: none; -1: it leaves), the number of this question, that of the member's last
-- that was answered, the account that answered it (0: none), then one event each:
--   p ID WORD [HINT]  proven: the answer is there. WORD: a(ccepted), r(efused: 423), q(uota: 429), n(othing)
--   l ID MICROS       lost: counted, if at all, within this time
--   u ID              unsent
--   k ID              kept: still in flight
-- Gives granted, the first of their numbers, micros until to ask again (-1: when told), micros of
-- the pause, live, rung, micros until the account opens, whether the share is agreed, the name of this account, and the
-- numbers of `k` that are not known.
--
-- The account is one hash, so that only what changes is read and written, and that all of it is there or
-- nothing. Strings are dear here, by their length; so are calls.

local key, terms, keep = KEYS[1], ARGV[1], tonumber(ARGV[2])
local member, channels, want, share = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local question, heard, known = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local call, floor, max, min, sub = redis.call, math.floor, math.max, math.min, string.sub
local pack, unpack_from = struct.pack, struct.unpack

-- Many numbers as one string, a thousand at once.
local function packed(list)
  local text = ''
  for at = 1, #list, 1000 do
    local some = min(#list - at + 1, 1000)
    text = text .. pack('<' .. string.rep('d', some), unpack(list, at, at + some - 1))
  end
  return text
end

local function numbers(text)
  local all = nil
  for at = 1, #text, 8000 do
    local some = min((#text - at + 1) / 8, 1000)
    local part = { unpack_from('<' .. string.rep('d', some), text, at) }
    -- The last is where it has stopped.
    part[some + 1] = nil
    for _, number in ipairs(all and part or {}) do all[#all + 1] = number end
    all = all or part
  end
  return all or {}
end

-- Another process of the server has another memory.
local info = call('INFO', 'server')
local named = string.find(info, 'run_id:', 1, true)
local run = tonumber(sub(info, named + 7, named + 19), 16)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- `terms`, and of `numbers` the first three, are so in every version. Beside these fields, `l` and its number is a
-- lease: since when, until when if nothing is heard, whose it is, in which question it was asked for. `p` and how
-- many there were before it, and one, is when something was proven: of those the last period's, in their order.
local account = redis.pcall('HMGET', key, 'terms', 'limits', 'numbers', 'lines', 'queue', 'shares', 'former')
if account.err and not string.find(account.err, 'WRONGTYPE', 1, true) then return account end
local its_terms, limits, its_numbers = account[1], account[2], account[3]
local lines, queue, shares, former = account[4] or '', account[5] or '', account[6] or '', account[7] or ''
local is_account = its_terms and limits and its_numbers and #its_numbers >= 24
-- Of shares: whether they can be read, and when it was.
local is_version, before = is_account and sub(its_terms, 1, 2) == '4 ', 0
if is_version then before = unpack_from('<d', its_numbers, 9) end

-- Of the limits: requests, what a proof is live for, the even spacing without and with its guard,
-- whether counters are kept within, the burst of a bucket (-1 none, -2 automatic), that of the pace (0
-- none), the rung to begin on, and how long a new account grants nothing. Before them, the version of this
-- account.
local most, hold, even, space, counters, bursts, paces, begin_on, recover
if is_account and its_terms == terms then
  most, hold, even, space, counters, bursts, paces, begin_on, recover = unpack_from('<ddddddddd', limits)
else
  limits = { string.match(terms, '^4 (%d+) (%d+) (%d+) (%d+) (%d) (%-?%d+) (%d+) (%d+) (%d+)$') }
  for at = 1, 9 do limits[at] = tonumber(limits[at]) end
  most, hold, even, space, counters, bursts, paces, begin_on, recover = unpack(limits)
  limits = packed(limits)
  if is_account then
    -- Other limits, or another version: theirs as long as anybody keeps them, who is heard of each half minute.
    local its_run, its_last, its_back = unpack_from('<ddd', its_numbers)
    recover = max(recover, tonumber(string.match(its_terms, '(%d+)$')) or 0)
    if its_run == run and now + its_back < its_last + max(recover, 65000000) then
      return redis.error_reply('FLEETTERMS ' .. its_terms)
    end
    is_account, former = false, ''
  end
end
local silence, usually_clean = 1002000, 600000000

-- Of `numbers`, in their order.
local FORMAT = '<' .. string.rep('d', 33)
local its_run, last, back, opens, seq, due, empty, usual, answered, careful, rung, evidence, down, climbs, clean,
  climbed, silent, paused, pauses, told, trial, tried, ends, open, first, n, proven, oldest, trims, eldest, stale, late, name
if is_account then
  its_run, last, back, opens, seq, due, empty, usual, answered, careful, rung, evidence, down, climbs, clean,
    climbed, silent, paused, pauses, told, trial, tried, ends, open, first, n, proven, oldest, trims, eldest, stale, late, name =
    unpack_from(FORMAT, its_numbers)
else
  last, rung, clean, climbed, paused, pauses, told, trial = now, begin_on, usually_clean, 0, 0, 0, 0, 0
end
local is_new = its_run ~= run
if is_new then
  -- Another memory, or none: whatever was granted before has to be over. What was heard only makes careful.
  if is_account then former = former .. pack('<d', name) end
  name = now
  -- By its own clock.
  paused, told, trial = now + max(paused - last, 0), now + max(told - last, 0), trial == 0 and 0 or -1
  last, back, opens, seq, due, empty, usual, answered, careful = now, 0, now + recover, now, 0, 0, 0, 0, 0
  evidence, down, climbs, silent, tried, ends = 0, 0, now + clean, 0, 0, math.huge
  -- How many are open, the first proof and the last, and when they were; what is known of the queue.
  open, first, n, proven, oldest, trims, eldest, stale, late = 0, 1, 0, 0, 0, 120, math.huge, math.huge, math.huge
  lines, queue = '', ''
  -- Who is alone does not know of it: its share is as old as it was.
  local old, kept = is_version and numbers(shares) or {}, ''
  for at = 1, #old, 5 do
    kept = kept .. pack('<ddddd', old[at], old[at + 1], old[at + 2] + now - before, old[at + 3] + now - before, old[at + 4])
  end
  shares = kept
end
local first_before, n_before, lines_before, queue_before, shares_before = first, n, lines, queue, shares
-- This server's clock may be put back: time goes on from where it was.
back = max(back, last - now)
now = now + back
last = now
-- A member comes from an account that this one does not follow, on a server that has stood in for this one: what was
-- granted there is not known here. From then on this is another account, which there is followed as little.
local is_former = is_new
if known ~= 0 and known ~= name then
  local followed, follows = numbers(former), false
  for at = 1, #followed do follows = follows or followed[at] == known end
  if not follows then
    opens = max(opens, now + recover)
    former, name, is_former = former .. pack('<dd', name, known), now, true
  end
end

-- Those who may go on without the store: who, its share, when it was last heard, and when its last question came,
-- and that one's number. A question may come long after it was sent: what is heard is the last one of which its member has
-- seen the answer. Who has not been heard of for as long as a lease lives may go on without the store from some time later
-- on, and for ten minutes; nobody else has its share then. A share that is too much is none.
local withheld, away, agreed = 0, 0, false
if shares ~= '' or share > 0 then
  local shared, others, left, had = max(share, 0), numbers(shares), {}, false
  local function keep_share(...)
    for _, number in ipairs({ ... }) do left[#left + 1] = number end
  end
  -- Of one that comes for the first time, and has heard another memory, it is not known when.
  local heard_at, came_at, last_question = heard > 0 and now - keep - 1 or now, now, question
  for at = 1, #others, 5 do
    local who, its, its_heard_at, its_came_at, its_last = unpack(others, at, at + 4)
    if who == member then
      had = its == share
      heard_at = heard >= its_last and its_came_at or its_heard_at
      if question <= its_last then came_at, last_question = its_came_at, its_last end
    elseif its_came_at + 660000000 >= now then
      keep_share(who, its, its_heard_at, its_came_at, its_last)
      shared = shared + its
      if its_heard_at + keep < now then withheld, away = withheld + its, away + 1 end
    end
  end
  -- Half of the quota, and of the places of a bucket, is for those who are there, whoever is dead. What was agreed on
  -- may be in use before its member hears of anything else.
  local places = bursts == -2 and 9 or bursts
  agreed = share > 0 and (had or 2 * shared <= most and (places < 0 or 2 * (#left / 5 + 1) <= places + 1))
  if agreed then keep_share(member, share, heard_at, came_at, last_question) end
  shares = packed(left)
end

-- What the rung keeps within: 0 proven, 1 strict, 2 serial, 3.. slowed. What is kept within less is spaced wider.
local usual_space = space
local function keeps()
  local limit, counter, burst = most, counters == 1, bursts
  if rung > 0 then
    counter = true
    burst = rung == 1 and ((burst < 0 or burst > 10) and 10 or burst) or 0
  end
  for _ = 3, rung do
    limit = max(limit - floor((limit + 4) / 5), 1)
  end
  -- Half of what the rung leaves, too: what was agreed on by these limits is half of them at the most.
  limit = max(limit - withheld, min(floor((limit + 1) / 2), most - withheld), 0)
  space = (rung > 2 or away > 0) and math.ceil(hold / max(limit, 1)) or usual_space
  return limit, counter, burst
end
local limit, counter, burst = keeps()

local function step(to)
  rung = to
  careful = 40 + open
  limit, counter, burst = keeps()
end

-- As `limits`' own: -1 no bucket, -2 automatic.
local function allowed()
  local allowed = burst
  if burst == -2 then
    allowed = max(floor(usual / space) + 5, 9)
  end
  local c = careful
  local careful = c == 0 and allowed or c <= 10 and 10 or c <= 20 and 2 or c <= 30 and 1 or 0
  return max(min(allowed, most - 1, careful) - away, 0)
end

-- The leases that were changed by this question: false of one that is gone. All of them, where they are asked for.
local changed, all = {}, nil
local function find(id)
  local lease = changed[id]
  if lease == nil then lease = not is_new and call('HGET', key, 'l' .. id) end
  return lease
end

local function change(id, lease)
  changed[id] = lease
  if all then all[id] = lease or nil end
end

local function leases()
  if not all then
    all = {}
    local fields = is_new and {} or call('HGETALL', key)
    for at = 1, #fields, 2 do
      if sub(fields[at], 1, 1) == 'l' and #fields[at + 1] == 32 then all[sub(fields[at], 2)] = fields[at + 1] end
    end
    for id, lease in pairs(changed) do all[id] = lease or nil end
  end
  return all
end

local function gone(id)
  if trial == tonumber(id) then trial = -1 end
  change(id, false)
  open = open - 1
  if open == 0 then eldest = math.huge end
end

local function unsent(id)
  gone(id)
  due = due - even
end

-- When one was proven, by its number.
local proofs = { [first] = oldest, [n] = proven }
local function proof(at)
  local known = proofs[at]
  if not known then
    known = tonumber(call('HGET', key, 'p' .. at))
    proofs[at] = known
  end
  return known
end

-- The first that was proven at that time or later, which is not long ago.
local function reached(at)
  local one = n + 1
  while one > first and proof(one - 1) >= at do one = one - 1 end
  return one
end

-- The windows of a counter that matter: since when, how many the window before had, the number of its own
-- first. Such a window lets so many more be counted as `previous * (1 - x) + current` leaves, which may be less for
-- one than for another from now on for as long as it lasts: then the other says it all. To find those costs more than to
-- keep some too many.
local function line(start, previous, number)
  if previous > 0 then lines = lines .. pack('<ddd', start, previous, number) end
end

local function trim()
  local all, left, size = numbers(lines), {}, 0
  for at = #all - 2, 1, -3 do
    local from, before, own = all[at], all[at + 1], all[at + 2]
    local lasts = from + hold - now
    local value, is_left, one = before * lasts - own * hold, lasts > 0, 1
    while is_left and one <= 4 * size do
      -- Later than it, and as much now and at its end. Of the others, the last eight and its neighbours.
      is_left = value > left[one + 3] or from > left[one] or (left[one + 2] - own) * hold > left[one + 1] * (left[one] - from)
      one = one == 29 and max(33, 4 * size - 31) or one + 4
    end
    if is_left then
      local at = 4 * size
      left[at + 1], left[at + 2], left[at + 3], left[at + 4] = from, before, own, value
      size = size + 1
    end
  end
  local kept = {}
  for at = 4 * size - 3, 1, -4 do kept[#kept + 1] = pack('<ddd', left[at], left[at + 1], left[at + 2]) end
  lines = table.concat(kept)
  trims = 2 * #lines + 120
end

-- One is proven to have been counted by `at`.
local function prove(at)
  at = max(at, proven)
  n = n + 1
  proofs[n] = at
  if at > proven then
    local from = first
    while proof(from) < at - hold do from = from + 1 end
    line(at, n - from, n)
    proven = at
  end
  if burst ~= -1 then
    local drains = space
    if careful > 0 or burst == 0 then
      careful = max(careful - 1, 0)
      drains = allowed() == 0 and space + 1000 or space
    end
    empty = max(empty, at) + drains
  end
end

local function ends_at(id, lease, at)
  change(id, sub(lease, 1, 8) .. pack('<d', at) .. sub(lease, 17))
  ends = min(ends, at)
end

if ends <= now then
  local over, when = {}, {}
  ends = math.huge
  for id, lease in pairs(leases()) do
    local at = unpack_from('<d', lease, 9)
    if at <= now then over[#over + 1], when[id] = id, at else ends = min(ends, at) end
  end
  table.sort(over, function(a, b) return when[a] < when[b] end)
  for _, id in ipairs(over) do
    prove(when[id])
    gone(id)
  end
end

-- What was proven longer than a period ago matters as the first of a window that begins a period later.
if proven + 2 * hold < now then
  first, lines = n + 1, ''
else
  local start = nil
  while first <= n and proof(first) + hold < now do
    if start ~= proof(first) + hold then
      start = proof(first) + hold
      local to = proven < start and n + 1 or reached(start)
      line(start, to - first, to)
    end
    first = first + 1
  end
end

local function hush() silent = max(silent, now + silence) end

local function hear(word, since, hint, tried)
  if word == 'a' then
    evidence = max(evidence - 1, 0)
    if now >= climbs then
      local wait = clean
      if rung > 0 then
        climbed = min(climbed + 1, 50)
        step(rung - 1)
        wait = rung > 0 and max(floor(clean / 2 ^ climbed), 60000000) or clean
      else
        climbed = 0
      end
      climbs = now + wait
    end
  elseif word == 'r' then
    hush()
    if since > down then
      evidence = evidence + 100
      if evidence >= 250 then
        clean = climbed > 0 and min(clean * 2, 86400000000) or usually_clean
        evidence, climbed, down, climbs = 0, 0, now, now + clean
        step(min(rung + 1, 18))
      end
    end
  elseif word == 'q' then
    -- As in one process: a minute at most until one tries, and longer each time where no time is told. What
    -- was sent before the pause says nothing new but a longer time, and nothing while one tries.
    if trial == 0 or tried then
      pauses = hint == 0 and min(max(2 * pauses, 1000000), 60000000) or 0
      paused = now + (hint == 0 and pauses or min(hint, 60000000))
      told = max(now + hint, paused)
      trial = -1
    elseif trial < 0 then
      paused = max(paused, now + min(hint, 60000000))
      told = max(told, now + hint)
    end
  end
end

-- The answers to some of its questions were lost: it has never heard of what was granted there.
if heard < question - 1 then
  for id, lease in pairs(leases()) do
    local whose, asked = unpack_from('<dd', lease, 17)
    if whose == member and asked > heard and asked < question then unsent(id) end
  end
end

local unknown, i = {}, 10
while ARGV[i] do
  local what, id = ARGV[i], ARGV[i + 1]
  local lease = find(id)
  i = i + 2
  if what == 'p' then
    local word, hint = ARGV[i], tonumber(ARGV[i + 1])
    i = i + 2
    local since, is_try = nil, trial == tonumber(id)
    if lease then
      since = unpack_from('<d', lease)
      gone(id)
      prove(now)
      answered = max(answered, since)
      local took, pace = now - since, max(floor(usual / 16), 500)
      usual = took > usual and min(usual + pace, took) or max(usual - pace, took)
      if is_try then
        trial = word == 'a' and 0 or -1
        if word == 'a' then told, pauses = 0, 0 end
      end
    end
    -- What is told twice, or of another memory, is heeded, but no evidence.
    if since or word ~= 'q' then hear(word, since or 0, hint, is_try) end
  elseif what == 'l' then
    if lease then ends_at(id, lease, now + tonumber(ARGV[i])) end
    if trial == tonumber(id) then trial = -1 end
    i = i + 1
  elseif what == 'u' then
    if lease then unsent(id) end
  elseif lease then
    ends_at(id, lease, now + keep)
  else
    unknown[#unknown + 1] = tonumber(id)
  end
end
if #lines > trims then trim() end
local windows = nil
-- Of the last period.
if first <= n then oldest = proof(first) end
local young = first
while young <= n and proof(young) <= now - hold do young = young + 1 end

-- What has long been unproven and was overtaken is counted no more by an automatic bucket; while
-- nothing at all is answered, a few more try. No lease is older than `eldest`.
local function overtaken(room, unproven)
  local long = max(usual * 8, 1000000)
  if eldest >= now - long then return room, unproven end
  local recent, waiting = min(answered, now - long), now
  unproven, eldest = 0, math.huge
  for _, lease in pairs(leases()) do
    local since = unpack_from('<d', lease)
    eldest = min(eldest, since)
    if since >= recent then
      unproven, waiting = unproven + 1, min(waiting, since)
    end
  end
  local longer = now - waiting - long
  if longer > 0 then
    local probes = longer < 2500000 and 1 or 1 + 2 ^ min(floor((longer - 2500000) / 500000), 20)
    room = min(room + probes, most - 1)
  end
  return room, unproven
end

-- The earliest time after `at` at which the counter lets `counted` be counted at once, for every start of its
-- windows. Those that matter begin at a proof, or a period after one.
local function counter_opens_at(at, counted)
  windows = windows or numbers(lines)
  local hold, windows, room = hold, windows, limit - counted
  local beyond = room - n - 1
  for one = 1, #windows, 3 do
    local previous, ends, room = windows[one + 1], windows[one] + hold, beyond + windows[one + 2]
    if (ends - at) * previous > room * hold and ends > at then
      at = ends - (room > 0 and floor(hold * room / previous) or 0)
    end
  end
  -- What more of them would say is when to ask, and not whether to grant.
  for one = first, min(n, first + 63) do
    local start = proof(one) + hold
    if start > at then break end
    local to = proven < start and n + 1 or reached(start)
    local previous, ends, room = to - one, start + hold, room - (n - to + 1)
    if ends > at and (ends - at) * previous > room * hold then
      at = ends - (room > 0 and floor(hold * room / previous) or 0)
    end
  end
  return at
end

-- The earliest time at which `more` fit, if nothing else happens; nil while that depends on a proof.
-- Whatever is later than `by` may be said to be earlier than it is.
local function opens_at(more, by)
  if trial ~= 0 and (more > 1 or trial > 0 and now < tried + 30000000) then return nil end
  local at = max(now, opens, silent, trial ~= 0 and paused or 0)
  -- The window: the last of those that have to be back.
  local returns = open + n - young + 1 + more - limit
  if returns > n - young + 1 then return nil end
  if returns > 0 then at = max(at, proof(young + returns - 1) + hold) end
  if rung == 0 and paces > 0 then
    at = max(at, due - (paces - more) * even)
  end
  -- The bucket: all that is unproven falls now.
  if burst ~= -1 then
    local room, unproven = allowed(), open
    if burst == -2 and unproven + more > room + 1 then room, unproven = overtaken(room, unproven) end
    room = room - unproven - more + 1
    if room < 0 then return nil end
    at = max(at, empty - room * space)
  end
  if counter and at < by then
    at = counter_opens_at(at, open + more)
  end
  return at
end

local from = seq + 1
local function grant()
  seq = seq + 1
  change(string.format('%.0f', seq), pack('<dddd', now, now + keep, member, question))
  ends = min(ends, now + keep)
  open, eldest = open + 1, min(eldest, now)
  due = (due + 2000 >= now and due or now) + even
  if trial ~= 0 then trial, tried = seq, now end
end

-- Each member that waits stands in the queue once: who it is, when it was told to ask, when it asked, and
-- how long its way is. Who was told and has not come in time is passed over, and stays first. Nobody is forgotten before
-- `stale`, and nobody late before `late`.
local function is_late(due, way) return due > 0 and due + max(50000, 2 * way) < now end
if stale < now or late < now then
  local left = {}
  stale, late = math.huge, math.huge
  for at = 1, #queue, 32 do
    local _, due, asked, way = unpack_from('<dddd', queue, at)
    if asked + 3000000 >= now then
      left[#left + 1] = sub(queue, at, at + 31)
      stale = min(stale, asked + 3000000)
      if due > 0 then late = min(late, due + max(50000, 2 * way)) end
    end
  end
  queue = table.concat(left)
end
local place, rank, mine, me = #queue + 1, 1, 0, pack('<d', member)
local stands = 0
repeat stands = string.find(queue, me, stands + 1, true) until not stands or stands % 32 == 1
if stands then
  local _, told, _, way = unpack_from('<dddd', queue, stands)
  -- From when it was told to ask until it came.
  local came = told > 0 and told <= now and min(now - told, 1000000) or way
  mine = max(came, way / 2)
  place = stands
  queue = sub(queue, 1, stands - 1) .. sub(queue, stands + 32)
end
rank = (place + 31) / 32
if late < now then
  for at = 1, place - 1, 32 do
    local _, told, _, way = unpack_from('<dddd', queue, at)
    if is_late(told, way) then rank = rank - 1 end
  end
end
local wait = 0
if want > 0 then
  local at = opens_at(rank, math.huge)
  if at and at <= now then
    -- Of what is open as much for each of those who wait, and one at least.
    local turn = max(floor((limit - open - n + young - 1) / (#queue / 32 + 1)), 1)
    repeat
      grant()
      want, turn = want - 1, turn - 1
      at = want > 0 and turn > 0 and opens_at(rank, math.huge)
    until not at or at > now
    if want > 0 and queue ~= '' then
      -- The next one is for the others first.
      place = #queue + 1
      at = opens_at((place + 31) / 32, math.huge)
    end
  end
  if want > 0 then
    queue = sub(queue, 1, place - 1) .. pack('<dddd', member, at or 0, now, mine) .. sub(queue, place)
    stale = min(stale, now + 3000000)
    if at then late = min(late, at + max(50000, 2 * mine)) end
    -- Nobody is told anything in a pause: all ask when it is over.
    wait = at and at - now or trial ~= 0 and paused > now and paused - now or -1
  end
end

-- Those who can be told now, or told better.
rank = 0
for at = 1, #queue, 32 do
  local who, told, _, way = unpack_from('<dddd', queue, at)
  if late >= now or not is_late(told, way) then
    rank = rank + 1
    if who ~= member and (told == 0 or told > now) then
      local better = told > 0 and told - 1000 or math.huge
      local opens = opens_at(rank, better)
      if not opens or opens > better then break end
      queue = sub(queue, 1, at + 7) .. pack('<d', opens) .. sub(queue, at + 16)
      late = min(late, opens + max(50000, 2 * way))
      call('PUBLISH', channels .. string.format('%.0f', who), math.ceil(opens - now))
    end
  end
end

-- All that is written, after all that might fail.
local puts = { 'numbers', pack(FORMAT, run, last, back, opens, seq, due, empty, usual, answered, careful, rung, evidence, down,
  climbs, clean, climbed, silent, paused, pauses, told, trial, tried, ends, open, first, n, proven, oldest, trims, eldest, stale, late, name) }
local drops = {}
local function put(field, value)
  local size = #puts
  puts[size + 1], puts[size + 2] = field, value
end
if is_new then
  put('terms', terms)
  put('limits', limits)
end
if lines ~= lines_before then put('lines', lines) end
if queue ~= queue_before then put('queue', queue) end
if shares ~= (is_new and '' or shares_before) then put('shares', shares) end
if is_former then put('former', sub(former, -64)) end
for id, lease in pairs(changed) do
  if lease then put('l' .. id, lease) else drops[#drops + 1] = 'l' .. id end
end
for at = max(n_before + 1, first), n do put('p' .. at, proofs[at]) end
for at = first_before, min(n_before, first - 1) do drops[#drops + 1] = 'p' .. at end
if is_new then
  call('DEL', key)
else
  for at = 1, #drops, 1000 do call('HDEL', key, unpack(drops, at, min(at + 999, #drops))) end
end
for at = 1, #puts, 1000 do call('HSET', key, unpack(puts, at, min(at + 999, #puts))) end
local reply = { seq - from + 1, from, math.ceil(wait), max(told - now, 0), open + n - young + 1, rung, max(opens - now, 0),
  agreed and 1 or 0, name }
for _, id in ipairs(unknown) do reply[#reply + 1] = id end
return reply
