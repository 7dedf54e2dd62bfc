package main

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// spell is the time for which something was in one state.
type spell[T any] struct {
	state *T        // nil: there was nothing
	from  string    // resourceVersion with which it began
	seen  time.Time // when we were told so
	gap   bool      // there may have been other states before it that nobody saw
}

// record is what something has been, in order.
type record[T any] []spell[T]

// add begins another spell. Before the first there was nothing.
func (r record[T]) add(s spell[T]) record[T] {
	if len(r) == 0 {
		r = record[T]{{from: "0"}}
	}
	return append(r, s)
}

// since returns the record without the spells that had ended by then.
func (r record[T]) since(then time.Time) record[T] {
	for len(r) > 1 && r[1].seen.Before(then) {
		r = r[1:]
	}
	return r
}

// before returns the record up to the resourceVersion.
func (r record[T]) before(rv string) record[T] {
	end := len(r)
	for end > 0 && later(r[end-1].from, rv) {
		end--
	}
	return r[:end]
}

// from returns the record from the spell on that was at the resourceVersion.
func (r record[T]) from(rv string) record[T] { return r[max(0, len(r.before(rv))-1):] }

// states returns the states, nil among them where there was nothing.
func (r record[T]) states() []*T {
	if len(r) == 0 {
		return []*T{nil}
	}
	out := make([]*T, 0, len(r))
	for _, s := range r {
		out = append(out, s.state)
	}
	return out
}

// last returns the state at the end of the record; nil if there is nothing.
func (r record[T]) last() *T {
	if len(r) == 0 {
		return nil
	}
	return r[len(r)-1].state
}

// torn reports whether there may be states that the record lacks.
func (r record[T]) torn() bool {
	return slices.ContainsFunc(r, func(s spell[T]) bool { return s.gap })
}

// later reports whether resourceVersion a is behind b. It is not if they cannot be compared.
func later(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
