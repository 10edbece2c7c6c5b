local rev, changes, run = unpack(KEYS) -- ...
local now, feed_max = unpack(ARGV) -- ...
-- Count one recall of each item that still exists and can be counted, with one entry in the feed.
-- Further KEYS: the item hashes. Further ARGV: their ids, in the same order.
-- The feed holds each item's new count, so that reading it twice gives the same. Returns `id:count`s.
if redis.call('EXISTS', rev) == 0 then return {} end
-- A key that holds something else fails here, before anything is written: Redis takes no write back.
if not string.match(redis.call('GET', rev) or '0', '^%d+$') then return redis.error_reply('ERR touch: rev is no number') end
redis.call('XLEN', changes)
redis.call('HLEN', run)
local counted = {}
for n = 4, #KEYS do
  local count = redis.call('HGET', KEYS[n], 'access_count')
  if count and string.match(count, '^%d+$') then counted[#counted + 1] = n end
end

local touched = {}
for _, n in ipairs(counted) do
  local count = redis.call('HINCRBY', KEYS[n], 'access_count', 1)
  redis.call('HSET', KEYS[n], 'last_access_ts', now)
  touched[#touched + 1] = ARGV[n - 1] .. ':' .. count
end
redis.call('HSET', run, 'last_recall_at', now)
if #touched > 0 then
  local revision = redis.call('INCR', rev)
  redis.call('XADD', changes, 'MAXLEN', '~', feed_max, revision .. '-0', 'op', 'touch',
    'data', table.concat(touched, ','), 'at', now)
end
return touched
