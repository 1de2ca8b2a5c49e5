// Package redisstore keeps records in Redis 7 or later: a standalone server,
// one behind Sentinel, or a cluster.
//
// # Guarantee
//
// Redis acknowledges a write before its replicas have it. A failover may
// therefore forget claims (two workers own one key for a while) and outcomes (a
// handler runs again); a crash of a server without append-only file forgets
// what its last snapshot lacks. [Options.WaitReplicas] makes this rarer and
// detectable, not impossible. Where that is not enough use a store that commits
// durably. As long as the server loses nothing, the store keeps every promise
// of the contract.
//
// Only the servers' clocks decide when a lease is over. Keep the clocks of a
// master and its replicas together, as one of them may take over.
//
// A record is one value with an expiry at the end of its retention, or of its
// lease if that is later; its effects are the fields of one hash beside it, with
// the same expiry. Nothing has to be purged.
//
// While a cluster moves a slot, claims of new effects in it, and with
// [Options.WaitReplicas] claims of records that have moved already, fail with
// errors that pass when the move is over. Everything else goes on.
//
// # Memory
//
// The server must not evict records. Every key of this store has an expiry, so
// of the policies of maxmemory-policy only noeviction is safe; all others
// (allkeys-lru, allkeys-lfu, allkeys-random, volatile-lru, volatile-lfu,
// volatile-random, volatile-ttl) are refused by [New] when maxmemory is set,
// unless [Options.AllowEviction] says otherwise. A server out of memory refuses
// new claims, and still records outcomes and renews leases.
//
// # The client
//
// The store needs up to 2 x [store.Limits].Parallel connections for claims and
// settlements and 2 more for renewals: 6 in all, fewer than the smallest pool
// that go-redis makes by itself. That is for one guard: each that secondrun.New
// makes, also on one store, has calls and renewals of its own and needs as many
// connections again, or its renewals wait behind the others' claims. Guards made
// by Guard.Sub share those of their parent. Give the store a client of its own,
// with ContextTimeoutEnabled, so that deadlines count. ReadOnly,
// RouteByLatency and RouteRandomly have no effect: Redis takes all scripts for
// writes and the client sends them to masters. Durations over 200 years are
// shortened to that.
//
// # Least privilege
//
// For the prefix "secondrun" (use TLS as well):
//
//	ACL SETUSER app on >password ~secondrun:* resetchannels -@all
//	    +evalsha +eval +script|load +info +time +get +set +setrange +pexpireat
//	    +unlink +hget +hset
//	with WaitReplicas: +wait
//	in a cluster:      +cluster|slots +command
//	for Inspector:     +scan +hgetall
//	for Admin:         +hgetall +hdel
//	for Counter:       +scan +getrange
//
// Without info and script|load the store works, unchecked and with a warning.
package redisstore
