// Package crashtest holds tests only: worker processes that consume an SQS
// queue through secondrun are killed, stopped and cut off at chosen points,
// and afterwards the world outside is counted.
package crashtest
