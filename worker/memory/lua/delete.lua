local item, items, unconsolidated, expiring, provenance, insights, rev, changes, connections, links = unpack(KEYS) -- ...
local id, feed_max, salience_at_most = unpack(ARGV) -- ...
-- Delete one item and its connections; a connection that only names it as its insight stays, unnamed.
-- Further KEYS, two a connection: the links of its other end, and of its insight (or of the item).
-- Further ARGV: the connections' fields, in the same order.
-- Returns OK, GONE, KEPT (its salience is above the floor) or RETRY (its connections have changed).
local fixed_keys, fixed_args = 10, 3
local source, salience = unpack(redis.call('HMGET', item, 'provenance', 'salience'))
if not source then return 'GONE' end
if salience_at_most ~= '' and tonumber(salience) > tonumber(salience_at_most) then return 'KEPT' end
if redis.call('SCARD', links) ~= #ARGV - fixed_args then return 'RETRY' end
for n = fixed_args + 1, #ARGV do
  if redis.call('SISMEMBER', links, ARGV[n]) == 0 then return 'RETRY' end
end

-- A key that holds something else fails here, before anything is written: Redis takes no write back.
for n = 2, 6 do redis.call('ZCARD', KEYS[n]) end
if not string.match(redis.call('GET', rev) or '0', '^%d+$') then return redis.error_reply('ERR delete: rev is no number') end
redis.call('XLEN', changes)
redis.call('HLEN', connections)
for n = fixed_keys + 1, #KEYS do redis.call('SCARD', KEYS[n]) end

for n = fixed_args + 1, #ARGV do
  local field = ARGV[n]
  local from, to = string.match(field, '^(%d+):(%d+):')
  if from == id or to == id then
    local at = fixed_keys + (n - fixed_args) * 2
    redis.call('HDEL', connections, field)
    redis.call('SREM', KEYS[at - 1], field)
    redis.call('SREM', KEYS[at], field)
  else
    local made = string.match(redis.call('HGET', connections, field) or '', '|.*$') or '||'
    redis.call('HSET', connections, field, made)
  end
end
redis.call('DEL', item, links)
redis.call('ZREM', items, id)
redis.call('ZREM', unconsolidated, id)
redis.call('ZREM', expiring, id)
redis.call('ZREM', insights, id)
redis.call('ZREM', provenance, source .. '\0' .. id)
local revision = redis.call('INCR', rev)
redis.call('XADD', changes, 'MAXLEN', '~', feed_max, revision .. '-0', 'op', 'delete', 'data', id)
return 'OK'
