local run = unpack(KEYS)
local token, attempt, lease_s = unpack(ARGV)
-- Begin a claimed pass: start its lease, by the server's clock.
-- `attempt` is a random name of this try, by which a repeated call is known.
-- Returns OK, RUNNING (another process holds the lease) or SUPERSEDED (the claim is not this one's).
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local state, holder, lease_until, tried = unpack(redis.call('HMGET', run, 'state', 'token', 'lease_until', 'attempt'))
if holder ~= token or (state ~= 'queued' and state ~= 'running') then return 'SUPERSEDED' end
if state == 'running' and tried == attempt then return 'OK' end -- Said before; the answer was lost.
if state == 'running' and tonumber(lease_until) > now then return 'RUNNING' end

redis.call('HSET', run, 'state', 'running', 'attempt', attempt, 'lease_until', string.format('%.3f', now + lease_s))
return 'OK'
