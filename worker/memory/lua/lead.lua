local leader = unpack(KEYS)
local token, ttl_ms = unpack(ARGV)
-- Take the lead if it is free, or keep it if it is ours. Returns 1 or 0.
if redis.call('GET', leader) == token then return redis.call('PEXPIRE', leader, ttl_ms) end
return redis.call('SET', leader, token, 'NX', 'PX', ttl_ms) and 1 or 0
