package main

import (
	"bufio"
	"context"
	"io"
	"time"
)

// A cluster is read again after a second, or after five times as long as the last time took: large ones are read seldom.
const (
	followPeriod = time.Second
	followShare  = 5
)

// follow calls step until it is done, fails, or ctx ends.
func follow(ctx context.Context, step func() (done bool, err error)) error {
	for {
		began := time.Now()
		done, err := step()
		if done || err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(followPeriod, followShare*time.Since(began))):
		}
	}
}

// flush has what was printed reach the user now.
func flush(w io.Writer) error {
	if b, ok := w.(*bufio.Writer); ok {
		return b.Flush()
	}
	return nil
}
