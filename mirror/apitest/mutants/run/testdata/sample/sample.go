// Package sample has something for each kind of mutation.
package sample

import "time"

const step = 10 * time.Second

// Delay returns how long to wait before a try.
func Delay(tries int, isUrgent bool) time.Duration {
	if tries == 0 || isUrgent {
		return 0
	}
	return min(time.Duration(tries)*step, 3*step)
}

// Most returns the greatest of some values.
func Most[T int | string](values ...T) (most T) {
	for _, v := range values {
		if v > most {
			most = v
		}
	}
	return most
}

// IsFull reports whether there are more calls than have room.
func IsFull(calls, room int) bool { return calls > room }

// Count counts a call.
func Count(calls map[string]int) string {
	calls["all"]++
	return "called"
}
