local due = unpack(KEYS)
local agent, score = unpack(ARGV)
-- Take an agent off the list of those due, unless its time was moved meanwhile. Returns 1 or 0.
if tonumber(redis.call('ZSCORE', due, agent) or -1) ~= tonumber(score) then return 0 end
return redis.call('ZREM', due, agent)
