// Package retry stands for the real one.
package retry

func Do(f func() error) error { return nil }
