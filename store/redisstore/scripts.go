package redisstore

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script, not a safeguard
	"encoding/hex"
)

// Every operation is one script. The text is constant; data travels in KEYS
// and ARGV only. KEYS[1] is the record, KEYS[2] the hash that keeps the
// records of its effects; both are in one slot. Calls about a handler name
// KEYS[1] alone: while a slot moves, a cluster answers TRYAGAIN to commands
// with a key that does not exist, and most records have no effects. A script
// that needs KEYS[2] then answers 11, has changed nothing, and is called again.
//
// The scripts begin with "#!lua" although they would run without it: a script
// with that line is a write for Redis from its first instruction, so a replica
// refuses it (READONLY) instead of answering from data that may be old, and a
// server that is out of memory refuses it unless it says allow-oom. A new
// claim must fail then; a settlement and a renewal must not, because the effect
// of the handler is done already.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

// scripts holds the scripts of a store and their names.
type scripts struct {
	claim, renew, settle, read, reopen, forget, ping script
}

func newScripts() scripts {
	return scripts{
		claim:  newScript(claimLua),
		renew:  newScript(renewLua),
		settle: newScript(settleLua),
		read:   newScript(readLua),
		reopen: newScript(reopenLua),
		forget: newScript(forgetLua),
		ping:   newScript(pingLua),
	}
}

func (s *scripts) all() []script {
	return []script{s.claim, s.renew, s.settle, s.read, s.reopen, s.forget, s.ping}
}

const (
	denyOOM  = "#!lua\n"
	allowOOM = "#!lua flags=allow-oom\n"
)

// nowLua begins every script: only the server's clock decides.
const nowLua = `
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
`

// formatLua reads and writes records; see record.go for the format. The
// payload of a record that is only answered is not cut out of it.
const formatLua = `
local sub, band = string.sub, bit.band

-- parse returns the record, or nil and the code that says why not.
local function parse(v)
  if #v < 2 or string.byte(v) ~= 0xD2 then return nil, 9 end
  if string.byte(v, 2) ~= 1 then return nil, 10 end
  if #v < 58 then return nil, 9 end
  local r = {}
  local _, flags, deliveries, metas, payloads, pos
  _, _, flags, r.token, r.till, r.exp, r.fence, r.starts, r.fails, r.crashes,
    deliveries, metas, payloads, pos = struct.unpack('>BBBc16I7I7I6I4I4I4I2I2I3', v)
  r.state = flags % 8
  r.took, r.effects = band(flags, 8) ~= 0, band(flags, 16) ~= 0
  r.judge, r.parent, r.fp = '', '', ''
  if band(flags, 32) ~= 0 then r.judge = sub(v, pos, pos + 15); pos = pos + 16 end
  if band(flags, 128) ~= 0 then r.parent = sub(v, pos, pos + 15); pos = pos + 16 end
  if band(flags, 64) ~= 0 then r.fp = sub(v, pos, pos + 33); pos = pos + 34 end
  if r.state == 0 or #v ~= pos - 1 + deliveries + metas + payloads then return nil, 9 end
  r.delivery = sub(v, pos, pos + deliveries - 1)
  pos = pos + deliveries
  r.meta = sub(v, pos, pos + metas - 1)
  r.payload = pos + metas
  return r
end

local function build(r, payload)
  local flags = r.state
  if r.took then flags = flags + 8 end
  if r.effects then flags = flags + 16 end
  if r.judge ~= '' then flags = flags + 32 end
  if r.fp ~= '' then flags = flags + 64 end
  if r.parent ~= '' then flags = flags + 128 end
  return struct.pack('>BBBc16I7I7I6I4I4I4I2I2I3', 0xD2, 1, flags, r.token, r.till, r.exp,
    r.fence, r.starts, r.fails, r.crashes, #r.delivery, #r.meta, #payload)
    .. r.judge .. r.parent .. r.fp .. r.delivery .. r.meta .. payload
end

-- ends is the instant, in microseconds, at which the record becomes absent.
local function ends(r)
  if r.state == 1 and r.till > r.exp then return r.till end
  return r.exp
end

-- ms rounds up: Redis may drop a record late, as that is not seen, never early.
local function ms(t) return math.ceil(t / 1000) end

local function more(n) return math.min(n + 1, 4294967295) end
`

// writeLua writes the record r of KEYS[1], or of the effect in KEYS[2] whose
// parent is p. The effects are valid only while their parent's record carries
// the effects mark: a fresh parent has none, so that what an earlier life left
// behind needs no removal until the first effect is claimed.
const writeLua = `
local function write(r, payload, effect, p)
  local v = build(r, payload)
  if not effect then
    call('SET', KEYS[1], v, 'PXAT', ms(ends(r)))
    if r.effects then call('PEXPIREAT', KEYS[2], ms(ends(r))) end
    return v
  end
  if not p.effects then
    call('UNLINK', KEYS[2])
    call('SETRANGE', KEYS[1], 2, string.char(p.state + (p.took and 8 or 0) + 16
      + (p.judge ~= '' and 32 or 0) + (p.fp ~= '' and 64 or 0) + (p.parent ~= '' and 128 or 0)))
  end
  call('HSET', KEYS[2], effect, v)
  call('PEXPIREAT', KEYS[2], ms(ends(p)))
  return v
end
`

// findLua reads the record to decide about. It answers v, r, p: the value (nil
// when absent), the parsed record and, for an effect, the parsed parent (nil
// when absent); and the code of a record that cannot be read.
const findLua = `
local function live(v)
  if not v then return nil end
  local r, err = parse(v)
  if err then return nil, nil, err end
  if now >= ends(r) then return nil end
  return v, r
end

local function find(effect, value)
  local v, r, err = live(value or call('GET', KEYS[1]))
  if err or not effect or not v then return v, r, nil, err end
  local p = r
  v = p.effects and call('HGET', KEYS[2], effect)
  if not v then return nil, nil, p end
  r, err = parse(v)
  return v, r, p, err
end
`

// claimLua: ARGV token, lease, retention, MaxFailures, MaxCrashes, flags (1
// park, 2 keep failures), fingerprint, delivery, meta [, effect, parent].
// Answers {verdict, now [, record [, displaced meta]]}; verdicts are those of
// the package store, 9 is corrupt and 10 incompatible. Here and below the
// commonest answer, {1, now}, is sent as now alone.
//
// What nearly all claims meet comes first, without the functions that the rest
// needs: no record, a succeeded one, a claimed one.
const claimLua = denyOOM + nowLua + `
local token, effect = ARGV[1], ARGV[10]
local v
if not effect then
  v = call('GET', KEYS[1])
  if not v then
    local till, exp = now + ARGV[2], now + ARGV[3]
    call('SET', KEYS[1], struct.pack('>BBBc16I7I7I6I4I4I4I2I2I3', 0xD2, 1, ARGV[7] == '' and 1 or 65,
      token, till, exp, 1, 1, 0, 0, #ARGV[8], #ARGV[9], 0) .. ARGV[7] .. ARGV[8] .. ARGV[9],
      'PXAT', math.ceil(math.max(till, exp) / 1000))
    return now
  end
  if #v >= 58 then
    local magic, version, flags, owner, till, exp = struct.unpack('>BBBc16I7I7', v)
    if magic == 0xD2 and version == 1 and (ARGV[7] == '' or bit.band(flags, 64) == 0) then
      local state = flags % 8
      if state == 3 and now < exp then return {2, now, v} end
      if state == 1 and now < till and owner ~= token then return {3, now, v} end
    end
  end
end
` + formatLua + writeLua + findLua + `
local r, p, err
v, r, p, err = find(effect, v)
if err then return {err, now} end
if effect and (not p or p.state ~= 1 or p.token ~= ARGV[11]) then return {7, now} end

local function grant(took)
  r.state, r.took, r.token, r.judge, r.parent = 1, took, token, '', ARGV[11] or ''
  r.fence, r.starts = r.fence + 1, more(r.starts)
  r.till = now + ARGV[2]
  r.exp = effect and 0 or now + ARGV[3]
  if ARGV[7] ~= '' then r.fp = ARGV[7] end
  r.delivery, r.meta = ARGV[8], ARGV[9]
  return write(r, '', effect, p)
end

if not v then
  r = {fence = 0, starts = 0, fails = 0, crashes = 0, fp = '', effects = false}
  grant(false)
  return now
end

local s = r.state
local closed = s >= 5
if not closed and r.fp ~= '' and ARGV[7] ~= '' and r.fp ~= ARGV[7] and sub(r.fp, 1, 2) == sub(ARGV[7], 1, 2) then
  return {6, now, sub(v, 1, 58)}
end
if r.token == token then
  if s == 1 then return {1, now, v} end
  if s == 3 then return {2, now, v} end
  if closed then return {4, now, v} end
  return {7, now}
end
if r.judge == token then return {5, now, v} end
if s == 3 then return {2, now, v} end
if s == 1 and now < r.till and (not effect or r.parent == ARGV[11]) then return {3, now, v} end

if r.effects and not KEYS[2] then return {11, now} end
local flags = tonumber(ARGV[6])
if closed then
  if s == 7 or not effect and flags >= 2 or ARGV[8] ~= '' and ARGV[8] == r.delivery then return {4, now, v} end
  r.fails, r.crashes = 0, 0
  return {1, now, grant(false)}
end

local function close(state, judge)
  r.state, r.judge, r.delivery, r.till = state, judge, ARGV[8], 0
  r.exp = effect and 0 or now + ARGV[3]
  return write(r, sub(v, r.payload), effect, p)
end

local maxFailures, maxCrashes = tonumber(ARGV[4]), tonumber(ARGV[5])
if s ~= 2 and not effect and (maxFailures > 0 and r.fails >= maxFailures or maxCrashes > 0 and r.crashes >= maxCrashes) then
  return {5, now, close(6, token)}
end
if s == 1 then
  if flags % 2 == 1 then return {4, now, close(7, '')} end
  local displaced = r.meta
  r.crashes = more(r.crashes)
  return {1, now, grant(true), displaced}
end
if now < r.till then return {3, now, v} end
return {1, now, grant(false)}
`

// renewLua: ARGV token, lease [, effect]. Answers {code, now [, state]}. The
// two instants lie side by side in the record, so that only they are written.
const renewLua = allowOOM + nowLua + formatLua + writeLua + findLua + `
local effect = ARGV[3]
local v, r, p, err = find(effect)
if err then return {err, now} end
if not v or r.token ~= ARGV[1] then return {3, now} end
if r.state ~= 1 then return {2, now, r.state} end
local before = ends(r)
r.till = now + ARGV[2]
if effect then
  write(r, sub(v, r.payload), effect, p)
  return now
end
if r.exp < r.till then r.exp = r.till end
local moved = ends(r) ~= before
if moved and r.effects and not KEYS[2] then return {11, now} end
call('SETRANGE', KEYS[1], 19, struct.pack('>I7I7', r.till, r.exp))
if moved then
  call('PEXPIREAT', KEYS[1], ms(ends(r)))
  if r.effects then call('PEXPIREAT', KEYS[2], ms(ends(r))) end
end
return now
`

// settleLua: ARGV token, kind, retention, not before, payload [, effect].
// Answers {code, now [, state]}.
//
// The success of a running handler without effects comes first, as in claimLua:
// flags, the two instants and the length of the payload change, the rest stays.
const settleLua = allowOOM + nowLua + `
local token, effect = ARGV[1], ARGV[6]
local v
if not effect then
  v = call('GET', KEYS[1])
  if v and #v >= 58 and ARGV[2] == '1' then
    local magic, version, flags, owner, till, exp, fence, starts, fails, crashes, deliveries, metas, payloads =
      struct.unpack('>BBBc16I7I7I6I4I4I4I2I2I3', v)
    local state, plain = flags % 8, flags < 16 or flags >= 64 and flags < 80 -- no effects, judge, parent
    if magic == 0xD2 and version == 1 and state == 1 and plain and owner == token and payloads == 0
      and now < math.max(till, exp) and #v == (flags >= 64 and 92 or 58) + deliveries + metas then
      exp = now + ARGV[3]
      call('SET', KEYS[1], struct.pack('>BBBc16I7I7I6I4I4I4I2I2I3', 0xD2, 1, flags + 2, token, 0, exp,
        fence, starts, fails, crashes, deliveries, metas, #ARGV[5]) .. string.sub(v, 59) .. ARGV[5],
        'PXAT', math.ceil(exp / 1000))
      return now
    end
  end
end
` + formatLua + writeLua + findLua + `
local kind = tonumber(ARGV[2])
local r, p, err
v, r, p, err = find(effect, v)
if err then return {err, now} end
local answer = 1
if not v then
  if kind ~= 1 or effect and not p then return {5, now} end
  answer = 5
  r = {token = token, fence = 1, starts = 1, fails = 0, crashes = 0, fp = '',
    parent = '', delivery = '', meta = '', effects = false, state = 1}
elseif r.token ~= token then
  return {3, now}
elseif r.state ~= 1 and not (kind == 1 and r.state >= 6) then
  return {2, now, r.state}
end
if r.effects and not KEYS[2] then return {11, now} end
r.judge, r.till = '', 0
r.state = ({3, 5, 4, 2, 7})[kind]
if kind == 2 or kind == 3 then r.fails = more(r.fails) end
if (kind == 3 or kind == 4) and tonumber(ARGV[4]) > 0 then r.till = now + ARGV[4] end
r.exp = effect and 0 or now + ARGV[3]
write(r, kind == 4 and '' or ARGV[5], effect, p)
return {answer, now}
`

// readLua: ARGV [effect | ” for all effects]. Answers {0, now, parent, effect
// or list of names and values}. It changes nothing, but goes to masters only as
// the other scripts do.
const readLua = allowOOM + nowLua + `
local v = call('GET', KEYS[1])
local e = false
if v and ARGV[1] == '' then e = call('HGETALL', KEYS[2])
elseif v and ARGV[1] then e = call('HGET', KEYS[2], ARGV[1]) end
return {0, now, v, e}
`

// reopenLua: ARGV action ("reopen", "force-release"), mark [, effect]. The mark
// takes the place of the token: nobody owns it, and a repeated call knows by it
// that it was applied. Answers {1 changed | 2 changed before | 3 no, now, the
// record before, the parent before}.
const reopenLua = allowOOM + nowLua + formatLua + writeLua + findLua + `
local effect = ARGV[3]
local v, r, p, err = find(effect)
if err then return {err, now} end
if not v then return {3, now} end
if r.state == 2 and r.token == ARGV[2] then return {2, now} end

local function open(r, effect, p)
  if ARGV[1] == 'reopen' then r.fails, r.crashes = 0, 0 end
  r.state, r.took, r.token, r.judge, r.till = 2, false, ARGV[2], '', 0
  write(r, '', effect, p)
end

local wanted = r.state == 1
if ARGV[1] == 'reopen' then wanted = r.state >= 4 end
if not wanted then return {3, now} end
local parent = call('GET', KEYS[1])
local list = {}
if ARGV[1] == 'reopen' and not effect and r.effects then
  local all = call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    local e, err = parse(all[i + 1])
    if err then return {err, now} end
    if e.state >= 4 then list[#list + 1] = {all[i], e} end
  end
end
-- A claim may have been the reason why the record still lived.
if r.state == 1 and not effect and r.exp < r.till then r.exp = r.till end
open(r, effect, p)
for _, e in ipairs(list) do open(e[2], e[1], r) end
return {1, now, v, parent}
`

// forgetLua: ARGV [effect]. Answers {1 removed | 3 absent, now, the record
// before, the parent before}. A record that cannot be read can be forgotten.
const forgetLua = allowOOM + nowLua + formatLua + findLua + `
local effect = ARGV[1]
local v, _, _, err = find(effect)
if err and not effect then v = call('GET', KEYS[1])
elseif err then v = call('HGET', KEYS[2], effect) end
if not v then return {3, now} end
local parent = call('GET', KEYS[1])
if effect then call('HDEL', KEYS[2], effect) else call('UNLINK', KEYS[1], KEYS[2]) end
return {1, now, v, parent}
`

// pingLua fails wherever a claim would: on a replica, while loading, out of
// memory, without enough replicas.
const pingLua = denyOOM + `return redis.call('TIME')`
