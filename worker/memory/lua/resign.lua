local leader = unpack(KEYS)
local token = unpack(ARGV)
-- Give up the lead if it is ours. Returns 1 or 0.
if redis.call('GET', leader) ~= token then return 0 end
return redis.call('DEL', leader)
