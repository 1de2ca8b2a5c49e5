package sqstest

type batchInput[E any] struct {
	QueueURL string `json:"QueueUrl"`
	Entries  []E
}

type batchOutput struct {
	Successful []any
	Failed     []failedEntry `json:",omitempty"`
}

type failedEntry struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

// idOnly is the answer to an entry of a delete or a visibility change.
type idOnly struct {
	ID string `json:"Id"`
}

// runBatch checks the ids of a batch and applies its entries one by one. A
// failed entry does not fail the call.
func runBatch[E any](c *call, entries []E, id func(E) string, apply func(E) (any, *Error)) (any, error) {
	if err := checkIDs(c, entries, id); err != nil {
		return nil, err
	}
	out := batchOutput{Successful: []any{}}
	for i, e := range entries {
		var res any
		err := c.entryFault(i, id(e))
		if err == nil {
			res, err = apply(e)
		}
		if err != nil {
			kind := shapeOf(err.Code)
			out.Failed = append(out.Failed, failedEntry{id(e), kind.query, err.Message, kind.fault() == "Sender"})
			continue
		}
		out.Successful = append(out.Successful, res)
	}
	return out, nil
}

func checkIDs[E any](c *call, entries []E, id func(E) string) error {
	switch n := len(entries); {
	case n == 0:
		return newError("EmptyBatchRequest", "There should be at least one %sRequestEntry in the request.", c.op)
	case n > 10:
		return newError("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10. You have sent %d.", n)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		switch k := id(e); {
		case k == "" || !within(k, 80, wordByte):
			return newError("InvalidBatchEntryId",
				"A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		case seen[k]:
			return newError("BatchEntryIdsNotDistinct", "Id %s repeated.", k)
		default:
			seen[k] = true
		}
	}
	return nil
}
