// Package checks holds tests about the repository itself: which package may
// import which, which modules a user of each package links, and what no file
// may contain. The table of packages in table_test.go is the place to declare
// a new one.
package checks
