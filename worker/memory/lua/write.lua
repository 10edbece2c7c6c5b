local seen, items, unconsolidated, expiring, provenance, rev, epoch, changes, run = unpack(KEYS) -- ...
local now, new_epoch, feed_max = unpack(ARGV) -- ...
-- Store a batch of one agent's events, each once.
-- Further KEYS: the item hash reserved for each event.
-- Further ARGV, nine an event: id, event_id, text, tier, kind, provenance, salience, ts, expires_at.
-- Returns {events stored, events seen before, items waiting for a pass, when the next may start}.
local fixed_keys, fixed_args, width = 9, 3, 9
local events = #KEYS - fixed_keys
if #ARGV ~= fixed_args + events * width then return redis.error_reply('ERR write: arguments do not fit keys') end

-- A key that holds something else fails here, before anything is written: Redis takes no write back.
for n = 1, 5 do redis.call('ZCARD', KEYS[n]) end
if not string.match(redis.call('GET', rev) or '0', '^%d+$') then return redis.error_reply('ERR write: rev is no number') end
redis.call('STRLEN', epoch)
redis.call('XLEN', changes)
redis.call('HLEN', run)

local stored, revision = {}, nil
local times, sources, expiries = {}, {}, {}
for n = 1, events do
  local at = fixed_args + (n - 1) * width
  local id, event_id, text, tier, kind, source, salience, ts, expires_at = unpack(ARGV, at + 1, at + width)
  if redis.call('ZADD', seen, 'NX', now, event_id) == 1 then
    revision = revision or tostring(redis.call('INCR', rev))
    local item, last = KEYS[fixed_keys + n], #times
    redis.call('HSET', item, 'text', text, 'tier', tier, 'kind', kind, 'provenance', source,
      'salience', salience, 'base', salience, 'bump', '0', 'access_count', '0', 'ts', ts,
      'event_id', event_id, 'rev', revision)
    times[last + 1], times[last + 2] = ts, id
    sources[last + 1], sources[last + 2] = '0', source .. '\0' .. id
    if expires_at ~= '' then
      redis.call('HSET', item, 'expires_at', expires_at)
      expiries[#expiries + 1], expiries[#expiries + 2] = expires_at, id
    end
    stored[#stored + 1] = id
  end
end
if #stored > 0 then
  redis.call('ZADD', items, unpack(times))
  redis.call('ZADD', unconsolidated, unpack(times))
  redis.call('ZADD', provenance, unpack(sources))
  if #expiries > 0 then redis.call('ZADD', expiring, unpack(expiries)) end
  redis.call('SET', epoch, new_epoch, 'NX')
  redis.call('XADD', changes, 'MAXLEN', '~', feed_max, revision .. '-0', 'op', 'put', 'data', table.concat(stored, ','))
end
local not_before, deferred_until = unpack(redis.call('HMGET', run, 'not_before', 'deferred_until'))
local earliest = string.format('%.17g', math.max(not_before or 0, deferred_until or 0))
return {#stored, events - #stored, redis.call('ZCARD', unconsolidated), earliest}
