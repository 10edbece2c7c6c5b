local run = unpack(KEYS)
local mark = unpack(ARGV)
-- Note that an insight stands on the insights stream, unless another waits by now. Returns 1 or 0.
if redis.call('HGET', run, 'unpublished') ~= mark then return 0 end
return redis.call('HDEL', run, 'unpublished')
