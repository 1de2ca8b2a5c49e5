// Package pgstore keeps secondrun's records in one table of a PostgreSQL
// database, version 14 or newer.
//
// Every claim, renewal and settlement is one statement and one round trip. A
// claim looks before it writes: a duplicate takes no lock, gets no transaction
// id and writes no WAL. No claim and no renewal ever waits for a transaction
// that has a record locked.
//
// The table is created by [Migrate], never by [Open] or [New]. The role that
// serves a queue needs USAGE on the schema and SELECT, INSERT, UPDATE and
// DELETE on this one table (DELETE only for Purge and Forget). Use TLS
// (sslmode=verify-full) wherever the connection leaves the machine.
//
// Records whose retention is over are absent at once, but take up space until
// [Store.Purge] removes them: call it from time to time, from the empty cursor
// until it returns one. It needs no index and can run beside everything else.
//
// # PgBouncer
//
// In transaction mode PgBouncer may run the statements of one client on many
// server connections, which breaks the prepared statements that pgx uses by
// default. Put default_query_exec_mode=exec into the DSN, or set
// [pgx.QueryExecModeExec] in the configuration of the pool; the package keeps no
// other state in a session.
//
// # Same-database mode
//
// [Store.Complete] settles the claim of a handler inside the handler's own
// transaction, so that its writes and the outcome commit together or not at
// all. [WrapTx] opens such a transaction around a handler.
package pgstore
