local item = unpack(KEYS)
local rev, entities, topics = unpack(ARGV)
-- Give an item the entities and topics found in its text, if the text is still the same. Returns 1 or 0.
if redis.call('HGET', item, 'rev') ~= rev then return 0 end
redis.call('HSET', item, 'entities', entities, 'topics', topics)
return 1
