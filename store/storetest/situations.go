package storetest

import "github.com/secondrun/secondrun/store"

// situation is a record that was brought into a state, and what is known of it.
type situation struct {
	owner store.ClaimRequest // of the latest grant
	judge store.ClaimRequest // of the claim that closed the record, if one did
	// c is what a claim would be told of the record: counters, holder, trace,
	// payload and failure.
	c store.Claim
}

// prepare brings the record of a new key into a state.
type prepare func(e *env) situation

// fingerprints of one version that differ.
func fingerprint(version uint16, content byte) store.Fingerprint {
	f := store.Fingerprint{Version: version}
	f.Sum[0] = content
	return f
}

// first grants a new key to an owner.
func first(e *env) situation {
	e.Helper()
	r := e.req("key-" + random())
	r.Fingerprint = fingerprint(1, 'a')
	r.Holder, r.Trace, r.Delivery = "first holder", "first trace", "first delivery"
	e.granted(r)
	return situation{owner: r, c: store.Claim{Fence: 1, Starts: 1, Holder: r.Holder, Trace: r.Trace}}
}

// next grants the record to another owner.
func (s situation) next(e *env, takeover bool) situation {
	e.Helper()
	r := e.req(s.owner.ID.Key)
	r.Holder, r.Trace, r.Delivery = "second holder", "second trace", "delivery "+random()
	if c := e.granted(r); c.Takeover != takeover {
		e.Fatalf("takeover = %t, want %t", c.Takeover, takeover)
	}
	s.owner = r
	s.c.Fence++
	s.c.Starts++
	if takeover {
		s.c.Crashes++
	}
	s.c.Holder, s.c.Trace, s.c.Payload, s.c.Failure = r.Holder, r.Trace, nil, 0
	return s
}

// over lets the lease end.
func (s situation) over(e *env) situation {
	e.Helper()
	e.over(s.owner)
	return s
}

// settled ends the claim; waiting says that Retry and Release make the next
// grant wait.
func (s situation) settled(e *env, k store.Kind, waiting bool) situation {
	e.Helper()
	set := settlement(s.owner, k, "payload of "+k.String())
	if waiting {
		set.NotBefore = long
	}
	e.settled(set, store.OK)
	switch k {
	case store.Retry:
		s.c.Failure = store.FailedTransient
		s.c.Failures++
	case store.Fail:
		s.c.Failure = store.FailedTerminal
		s.c.Failures++
	case store.Park:
		s.c.Failure = store.FailedParked
	case store.Succeed, store.Release:
	}
	if k != store.Release {
		s.c.Payload = set.Payload
	}
	return s
}

// closed lets a claim find the record exhausted or park it.
func (s situation) closed(e *env, change func(*store.ClaimRequest), v store.Verdict, f store.Failure) situation {
	e.Helper()
	s.judge = e.req(s.owner.ID.Key)
	s.judge.Holder, s.judge.Trace, s.judge.Delivery = "judge", "judge", "judge's delivery"
	change(&s.judge)
	s.c.Verdict, s.c.Failure = v, f
	e.answered(s.judge, s.c)
	s.c.Verdict = 0
	return s
}

func exhaust(r *store.ClaimRequest) { r.MaxFailures, r.MaxCrashes = 1, 1 }
func park(r *store.ClaimRequest)    { r.ParkOnTakeover = true }

// situations are the states of the claim table by name.
func situations() map[string]prepare {
	settled := func(k store.Kind, waiting bool) prepare {
		return func(e *env) situation { return first(e).settled(e, k, waiting) }
	}
	return map[string]prepare{
		"claimed":            first,
		"lease over":         func(e *env) situation { return first(e).over(e) },
		"released":           settled(store.Release, false),
		"released, waiting":  settled(store.Release, true),
		"transient":          settled(store.Retry, false),
		"transient, waiting": settled(store.Retry, true),
		"succeeded":          settled(store.Succeed, false),
		"terminal":           settled(store.Fail, false),
		"parked":             settled(store.Park, false),
		"exhausted": func(e *env) situation {
			return first(e).settled(e, store.Retry, false).closed(e, exhaust, store.Exhausted, store.FailedExhausted)
		},
		"parked by a claim": func(e *env) situation {
			return first(e).over(e).closed(e, park, store.Failed, store.FailedParked)
		},
		"claimed after a failure": func(e *env) situation {
			return first(e).settled(e, store.Retry, false).next(e, false)
		},
		"lease over after a failure": func(e *env) situation {
			return first(e).settled(e, store.Retry, false).next(e, false).over(e)
		},
		"lease over after a takeover": func(e *env) situation {
			return first(e).over(e).next(e, true).over(e)
		},
		"claimed by takeover": func(e *env) situation { return first(e).over(e).next(e, true) },
		"released after a failure": func(e *env) situation {
			return first(e).settled(e, store.Retry, false).next(e, false).settled(e, store.Release, false)
		},
		"succeeded after a failure": func(e *env) situation {
			return first(e).settled(e, store.Retry, false).next(e, false).settled(e, store.Succeed, false)
		},
		"terminal without delivery": func(e *env) situation {
			s := first(e).settled(e, store.Release, false)
			s.owner = e.req(s.owner.ID.Key)
			s.owner.Delivery = ""
			e.granted(s.owner)
			s.c.Fence, s.c.Starts = 2, 2
			s.c.Holder, s.c.Trace = s.owner.Holder, s.owner.Trace
			return s.settled(e, store.Fail, false)
		},
	}
}
