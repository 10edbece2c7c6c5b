local run, passes, items, unconsolidated, expiring, provenance, insights, rev, changes, connections = unpack(KEYS) -- ...
local token, now, not_before, rerate, passes_max, feed_max, window, links, insight, report = unpack(ARGV) -- ...
-- Apply a whole pass, or nothing of it.
-- `window`, `links`, `insight`, `report`: how many items, connections, insights (0 or 1) and report
-- fields follow. Further KEYS: the window's item hashes, their links, then the insight's hash and links.
-- Further ARGV: an item: id, revision, entities, topics ('' leaves them); a connection: from, to,
-- relationship; an insight: id, text, provenance, salience, expires_at, source ids, entities, topics;
-- then the report's fields and values.
-- Returns {word, connections made, salience raised}: OK, also when it was committed before and the
-- answer was lost, or SUPERSEDED or CHANGED, and then nothing was changed. An item that cannot be read
-- counts as changed: reading the window again leaves it out.
local fixed_keys, fixed_args = 10, 10
if #KEYS ~= fixed_keys + window * 2 + insight * 2 or #ARGV ~= fixed_args + window * 4 + links * 3 + insight * 8 + report * 2 then
  return redis.error_reply('ERR commit: arguments do not fit')
end
local made_by = '|' .. token .. '|' .. now
local holder, state, committed, connected, rerated = unpack(redis.call('HMGET', run, 'token', 'state', 'committed', 'connected', 'rerated'))
if committed == token then return {'OK', tonumber(connected), tonumber(rerated)} end
if holder ~= token or state ~= 'running' then return {'SUPERSEDED', 0, 0} end
local at, item_of, links_of = fixed_args, {}, {}
for n = 1, window do
  local id = ARGV[at + (n - 1) * 4 + 1]
  item_of[id], links_of[id] = KEYS[fixed_keys + n], KEYS[fixed_keys + window + n]
  local revision, base, bump, salience, recalls =
    unpack(redis.call('HMGET', item_of[id], 'rev', 'base', 'bump', 'salience', 'access_count'))
  local readable = tonumber(base) and tonumber(bump) and tonumber(salience) and tonumber(recalls)
  if not readable or revision ~= ARGV[at + (n - 1) * 4 + 2] then return {'CHANGED', 0, 0} end
end
for n = 1, links do
  local from, to = unpack(ARGV, at + window * 4 + (n - 1) * 3 + 1, at + window * 4 + (n - 1) * 3 + 2)
  if not links_of[from] or not links_of[to] then return redis.error_reply('ERR commit: a connection leaves the window') end
end

-- A key that holds something else fails here, before anything is written: Redis takes no write back.
for n = 3, 7 do redis.call('ZCARD', KEYS[n]) end
if not string.match(redis.call('GET', rev) or '0', '^%d+$') then return redis.error_reply('ERR commit: rev is no number') end
redis.call('XLEN', changes)
redis.call('XLEN', passes)
redis.call('HLEN', connections)
for n = 1, window do redis.call('SCARD', KEYS[fixed_keys + window + n]) end

local insight_at = at + window * 4 + links * 3
local insight_id = insight == '1' and ARGV[insight_at + 1] or ''
local insight_links = KEYS[fixed_keys + window * 2 + 2]
local made, degree = 0, {}
for n = 1, links do
  local from, to, relationship = unpack(ARGV, at + window * 4 + (n - 1) * 3 + 1, at + window * 4 + n * 3)
  local field = from .. ':' .. to .. ':' .. relationship
  if redis.call('HSETNX', connections, field, insight_id .. made_by) == 1 then
    made = made + 1
    degree[from], degree[to] = (degree[from] or 0) + 1, (degree[to] or 0) + 1
    redis.call('SADD', links_of[from], field)
    redis.call('SADD', links_of[to], field)
    if insight_id ~= '' then redis.call('SADD', insight_links, field) end
  end
end

local raised = {}
for n = 1, window do
  local id, _, entities, topics = unpack(ARGV, at + (n - 1) * 4 + 1, at + n * 4)
  local item = item_of[id]
  local base, bump, salience, recalls, counted =
    unpack(redis.call('HMGET', item, 'base', 'bump', 'salience', 'access_count', 'counted'))
  local more = 10 * (degree[id] or 0)
  -- By the count, not by the time of the last recall, which another machine's clock has given.
  if tonumber(recalls) > (tonumber(counted) or 0) then more = more + 5 end
  if rerate == '1' and more > 0 then
    local higher = string.format('%.14g', math.min(1, base + (bump + more) / 100))
    redis.call('HSET', item, 'bump', bump + more, 'salience', higher)
    if tonumber(higher) > tonumber(salience) then raised[#raised + 1] = id .. ':' .. higher end
  end
  if entities ~= '' then redis.call('HSET', item, 'entities', entities) end
  if topics ~= '' then redis.call('HSET', item, 'topics', topics) end
  redis.call('HSET', item, 'last_consolidated_at', now, 'counted', recalls)
  redis.call('ZREM', unconsolidated, id)
end
if #raised > 0 then
  redis.call('XADD', changes, 'MAXLEN', '~', feed_max, redis.call('INCR', rev) .. '-0', 'op', 'rerate', 'data', table.concat(raised, ','))
end

if insight_id ~= '' then
  local _, text, source, salience, expires_at, sources, entities, topics = unpack(ARGV, insight_at + 1, insight_at + 8)
  local item, revision = KEYS[fixed_keys + window * 2 + 1], redis.call('INCR', rev)
  redis.call('HSET', item, 'text', text, 'tier', 'durable', 'kind', 'insight', 'provenance', source,
    'salience', salience, 'base', salience, 'bump', 0, 'access_count', 0, 'ts', now, 'event_id', '',
    'rev', revision, 'source_ids', sources, 'entities', entities, 'topics', topics)
  redis.call('ZADD', items, now, insight_id)
  redis.call('ZADD', insights, now, insight_id)
  redis.call('ZADD', provenance, 0, source .. '\0' .. insight_id)
  if expires_at ~= '' then
    redis.call('HSET', item, 'expires_at', expires_at)
    redis.call('ZADD', expiring, expires_at, insight_id)
  end
  redis.call('XADD', changes, 'MAXLEN', '~', feed_max, revision .. '-0', 'op', 'put', 'data', insight_id)
  redis.call('HSET', run, 'unpublished', insight_id .. made_by)
end

redis.call('HSET', run, 'state', 'idle', 'not_before', not_before, 'deferred_reason', '',
  'committed', token, 'connected', made, 'rerated', #raised)
redis.call('XADD', passes, 'MAXLEN', '~', passes_max, '*', 'connections_made', made, 'salience_rerated', #raised,
  unpack(ARGV, insight_at + insight * 8 + 1))
return {'OK', made, #raised}
