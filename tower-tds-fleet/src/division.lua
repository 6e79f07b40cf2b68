-- Divides the limits of one fleet among its members. One question of one member, one answer.
--
-- KEYS[1]  the hash of the fleet
-- ARGV[1]  the member's id; ARGV[2] the number of its question; ARGV[4] its quotas, as text;
--          ARGV[5] the run that answered its last question, while its share lasts; ARGV[6] its host and process;
--          ARGV[7] the origin of its service, which earlier versions do not name
-- ARGV[3]  numbers: held, wanted, total (requests, places, sockets each), unit, hold,
--          memory, silence, leaves, share (requests, places, sockets), stepped
--
-- The hash is decimal text: run (of the server), began (since when it has data), quotas, service, silent, anew
-- (the last step of the clock), and a field for
-- each member, "member:ID" with number, record, wanted, total, unit, hold, seen, memory, state, since, and the host and process
-- in quotes. Later versions only append to it.
-- Times are milliseconds of the server's clock.

local ENDS, SOCKETS, TURN, PATIENCE, NEW, WEEK = 5000, 75000, 4000, 2200, 20, 604800000
local IDLE, WAITS, HOLDS = 0, 1, 2

local function numbers(text) return cjson.decode('[' .. text .. ']') end
local function three(list, at) return {list[at], list[at + 1], list[at + 2]} end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local run = redis.call('INFO', 'server'):match('run_id:(%w+)')
local asked = numbers(ARGV[3])
local me = {id = ARGV[1], number = tonumber(ARGV[2]), claim = three(asked, 1), wanted = three(asked, 4),
  total = three(asked, 7), unit = asked[10], hold = asked[11], seen = now, memory = asked[12], state = IDLE, since = now}
local silence, leaves, have, stepped = asked[13], asked[14] == 1, three(asked, 15), asked[18] == 1
for k = 1, 3 do me.claim[k] = math.max(me.claim[k], have[k]) end

-- What the store remembers.
local hash, others, before, forgotten = {}, {}, nil, {}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local id = fields[i]:match('^member:(%w+)$')
  if id then
    local n = numbers(fields[i + 1])
    local member = {id = id, number = n[1], record = three(n, 2), wanted = three(n, 5), total = three(n, 8), unit = n[11],
      hold = n[12], seen = n[13], memory = n[14], state = n[15], since = n[16]}
    if id == me.id then before = member else others[#others + 1] = member end
  else
    hash[fields[i]] = fields[i + 1]
  end
end
if before and me.number <= before.number then
  return redis.error_reply('LATE a later question was answered')
end
-- If another server answered last, members have shares that this server does not have on record. After a forward step of the
-- clock, records look older than they are, so silent members are counted anew.
local is_known = hash.run == run and (ARGV[5] == '' or ARGV[5] == run) and not stepped
local began, memory = is_known and tonumber(hash.began) or now, me.memory
local anew = stepped and now or tonumber(hash.anew or 0)
-- The member may yet report a step. Until then nothing is forgotten.
local is_steady = before and now < before.seen + ENDS

-- What the others have, or may still have. What silent members had is withheld, all of it, until nothing of theirs can be in
-- use. `frees` is the time until then, for requests and for sockets.
local taken, withheld, frees = {0, 0, 0}, {0, 0, 0}, {0, 0}
local function withhold(k, record, lasts)
  withheld[k] = withheld[k] + record[k]
  local which = k < 3 and 1 or 2
  if record[k] > 0 then frees[which] = math.max(frees[which], lasts) end
end
local total, members, unit, live = three(me.total, 1), {me}, me.unit, 1
for _, other in ipairs(others) do
  local ends, record = math.max(other.seen + ENDS, anew), other.record
  local over = ends + other.memory + math.max(0, record[2] / math.max(1, record[1]) - 2) * other.hold
  memory = math.max(memory, other.memory)
  if now < ends then
    members[#members + 1], live, unit = other, live + 1, math.max(unit, other.unit)
    for k = 1, 3 do
      taken[k] = taken[k] + record[k]
      total[k] = math.min(total[k], other.total[k])
    end
  else
    if now < over then
      withhold(1, record, over - now)
      withhold(2, record, over - now)
    end
    if now < ends + SOCKETS then
      withhold(3, record, ends + SOCKETS - now)
    elseif now >= over and is_steady then
      forgotten[#forgotten + 1] = 'member:' .. other.id
    end
  end
end
if live > 1 and hash.quotas ~= ARGV[4] then
  return redis.error_reply('QUOTAS the other members have ' .. hash.quotas)
end
local service = ARGV[7] or ''
if live > 1 and service ~= '' and (hash.service or service) ~= service then
  return redis.error_reply('SERVICE the other members call ' .. hash.service)
end
-- The first new member waits two seconds, so that members of an earlier time who are still there can send their questions.
if not before and live == 1 and #others > 0 then began = math.max(began, now + 2000 - ENDS - memory) end
local grows_at = began + ENDS + memory
local most, divided = {}, {}
for k = 1, 3 do
  taken[k] = taken[k] + withheld[k]
  most[k] = total[k] - math.min(2, math.floor(total[k] / (k == 2 and withheld[2] == 0 and 20 or 10)))
  divided[k] = k < 3 and most[k] or math.max(0, most[k] - withheld[k])
end

-- A member that dies soon after each start would take a share with it each time. So while places or sockets are withheld, one that
-- has asked few questions waits for its first share.
for _, member in ipairs(withheld[2] + withheld[3] > 0 and members or {}) do
  if member.number < NEW and (member.record or me.claim)[1] == 0 then member.wanted = {0, 0, 0} end
end

-- The members that hold a share now, in turns where not all can. One that has waited for a while replaces the one that has held for
-- longest, so waits are alike and no turn ends for less.
local function is_active(member) return member.wanted[1] > 0 end
local function turn(member)
  local lasts = now - member.since
  if member.state == HOLDS then return lasts < TURN and 0 or now + lasts end
  return member.since + (lasts < PATIENCE and 2 * now or 0)
end
if before then me.state, me.since = before.state, before.since end
if not is_active(me) then
  me.state = IDLE
elseif me.state == IDLE then
  me.state, me.since = WAITS, now
end
local holders, idle = {}, {}
for _, member in ipairs(members) do
  local list = is_active(member) and not (leaves and member == me) and holders or idle
  list[#list + 1] = member
end
table.sort(holders, function(a, b)
  local x, y = turn(a), turn(b)
  return x < y or x == y and a.id < b.id
end)
local most_holders = math.max(1, math.min(math.floor(most[1] / unit), most[2], divided[3]))
while #holders > most_holders do idle[#idle + 1] = table.remove(holders) end
local holds = false
for _, member in ipairs(holders) do holds = holds or member == me end

-- The max-min fair part of `all` for this member, and what is left for others.
local function fair(list, k, all)
  table.sort(list, function(a, b)
    local x, y = a.wanted[k], b.wanted[k]
    return x < y or x == y and a.id < b.id
  end)
  local left, level, mine = all, 0, 0
  for i, member in ipairs(list) do
    level = math.floor(left / (#list - i + 1))
    if member.wanted[k] > level then
      -- All members from here on get the level. The first of them, by id, get one more.
      local more, rank = left - level * (#list - i + 1), 0
      if me.wanted[k] <= level then return mine, 0 end
      for j = i, #list do
        if list[j].id < me.id then rank = rank + 1 end
      end
      return level + (rank < more and 1 or 0), 0
    end
    left = left - member.wanted[k]
    if member == me then mine = member.wanted[k] end
  end
  return mine, left
end

-- Requests and places that no member wants are divided too, so that the next call does not wait. Sockets are not: a silent
-- member's stay withheld for long.
local target = {0, 0, 0}
for k = 1, 3 do
  local mine, left = fair(holders, k, divided[k])
  if holds then
    target[k] = mine + (k < 3 and math.floor(left / #holders) or 0)
  elseif k == 3 and not leaves then
    target[k] = fair(idle, k, left)
  end
end

-- Places are given up before requests, because a bucket drains at the rate of the requests.
if total[2] < total[1] and me.claim[2] > target[2] then target[1] = math.max(target[1], me.claim[1]) end

-- Growth comes only from what is free. What is held beyond the share never becomes a share again. A new holder may take two
-- units from the reserve: a counter of one takes a request every two seconds.
local share, record = {}, {}
for k = 1, 3 do
  local free = most[k] - taken[k]
  if holds and me.state ~= HOLDS then
    local first = math.min(total[k] - taken[k], k == 1 and 2 * unit or 1)
    free = before and math.max(free, first) or first
  end
  if now < grows_at then free = 0 end
  share[k] = math.min(target[k], math.max(have[k], free))
  record[k] = math.max(me.claim[k], share[k])
end
local state = share[1] >= unit and share[2] > 0 and share[3] > 0 and HOLDS or is_active(me) and not leaves and WAITS or IDLE
if state ~= me.state then me.state, me.since = state, now end

local silent = math.max(tonumber(hash.silent or 0), silence > 0 and now + silence or 0)
local write = {'run', run, 'began', began, 'quotas', ARGV[4], 'anew', anew, 'silent', silent}
if service ~= '' then write[#write + 1], write[#write + 2] = 'service', service end
if leaves then me.seen = now - ENDS end
if leaves and math.max(record[1], record[2], record[3]) == 0 then
  forgotten[#forgotten + 1] = 'member:' .. me.id
else
  write[#write + 1] = 'member:' .. me.id
  write[#write + 1] = table.concat({me.number, record[1], record[2], record[3], me.wanted[1], me.wanted[2], me.wanted[3],
    me.total[1], me.total[2], me.total[3], me.unit, me.hold, me.seen, me.memory, me.state, me.since, cjson.encode(ARGV[6] or '')}, ',')
end
redis.call('HSET', KEYS[1], unpack(write))
if #forgotten > 0 then redis.call('HDEL', KEYS[1], unpack(forgotten)) end
redis.call('PEXPIRE', KEYS[1], WEEK)
local answer = {now, math.max(0, silent - now), math.max(0, grows_at - now), live, frees[1], frees[2]}
for _, list in ipairs({share, total, withheld}) do
  for k = 1, 3 do answer[#answer + 1] = list[k] end
end
return {answer, run}
