package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/secondrun/secondrun/store"
)

// permanent lists the replies that waiting does not mend. Everything else that
// a server answers passes by itself or after an operator's help: READONLY,
// LOADING, CLUSTERDOWN, MASTERDOWN, TRYAGAIN, MOVED, ASK, OOM, BUSY, MISCONF,
// NOREPLICAS and whatever later versions add.
var permanent = [...]string{
	"NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "CROSSSLOT", "NOPROTO",
	"ERR unknown command", "ERR unknown subcommand", "ERR Unknown Redis command",
	"ERR The user executing the script can't run", "ERR ACL failure in script",
	"ERR Error compiling script", "ERR Unexpected engine in script shebang",
	"ERR DB index is out of range", "ERR invalid password", "ERR AUTH",
	"ERR user_script", // an error inside a script: a defect, or a server that lacks something
}

// classify wraps what the client answered, once.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		for _, prefix := range permanent {
			if strings.HasPrefix(reply.Error(), prefix) {
				return fmt.Errorf("redisstore: %w: %w", store.ErrPermanent, err)
			}
		}
	}
	return fmt.Errorf("redisstore: %w", err)
}

// ownRecord reports whether err is about the record of one item and says
// nothing about the server.
func ownRecord(err error) bool {
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrIncompatible) || errors.Is(err, errTooLong) {
		return true
	}
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "WRONGTYPE")
}

var (
	errTooLong      = fmt.Errorf("redisstore: text or payload over the limit of the contract: %w", store.ErrPermanent)
	errUnknownReply = fmt.Errorf("redisstore: a script answered what it never answers: %w", store.ErrPermanent)
)

// ErrTooFewReplicas is wrapped by the error of a claim or settlement that was
// applied but not acknowledged by [Options.WaitReplicas] replicas in time.
// Repeating the operation with the same token waits for them again.
var ErrTooFewReplicas = errors.New("redisstore: too few replicas acknowledged the write")
