local run, passes = unpack(KEYS)
local token, not_before, deferred_reason, passes_max = unpack(ARGV) -- ...
-- End a claimed run that changed no memory: put off, skipped or failed.
-- Further ARGV: the report as fields and values; none when the run was only put off.
-- Returns OK, also when it has ended already, or SUPERSEDED when the claim is not this one's any more.
if redis.call('HGET', run, 'token') ~= token then return 'SUPERSEDED' end
if redis.call('HGET', run, 'state') == 'idle' then return 'OK' end

redis.call('XLEN', passes) -- A key of another type fails here, before anything is written.
redis.call('HSET', run, 'state', 'idle', 'not_before', not_before, 'deferred_reason', deferred_reason)
if #ARGV > 4 then redis.call('XADD', passes, 'MAXLEN', '~', passes_max, '*', unpack(ARGV, 5)) end
return 'OK'
