local run = unpack(KEYS)
local token, gone, force = unpack(ARGV)
-- Claim an agent's next pass: at most one is queued or running, judged by the server's clock.
-- `gone` is the token of a queued run whose job has vanished; '' for none. `force` is 1 or 0.
-- Returns {word, detail}: OK number, QUEUED token, RUNNING end of lease, EARLY time, UNPUBLISHED insight.
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local state, holder, number, lease_until, not_before, unpublished =
  unpack(redis.call('HMGET', run, 'state', 'token', 'number', 'lease_until', 'not_before', 'unpublished'))
if state == 'queued' and holder == token then return {'OK', number} end -- Said before; the answer was lost.
if unpublished then return {'UNPUBLISHED', unpublished} end
if state == 'running' and tonumber(lease_until) > now then return {'RUNNING', lease_until} end
if state == 'queued' and holder ~= gone then return {'QUEUED', holder} end
if force ~= '1' and tonumber(not_before or 0) > now then return {'EARLY', not_before} end

redis.call('HSET', run, 'state', 'queued', 'token', token, 'claimed_at', string.format('%.3f', now))
redis.call('HDEL', run, 'deferred_reason', 'deferred_until', 'lease_until')
return {'OK', tostring(redis.call('HINCRBY', run, 'number', 1))}
