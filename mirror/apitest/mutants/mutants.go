// Package mutants is imported by instrumented copies of the product's packages,
// in which each mutation is a branch behind a number. Its program run writes
// them, and has the tests look for each mutation in turn. The product does not
// import it.
package mutants

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	// ActiveVariable is the environment variable that holds the number of the
	// mutation to make. Without it, or with 0, the code works as it is written.
	ActiveVariable = "MUTANT"
	// ReachedVariable names the file that gets the number of each mutation that
	// would have made a difference to the process, if but for a moment.
	ReachedVariable = "MUTANTS_REACHED"
)

// maxMutants bounds the numbers of mutations.
const maxMutants = 1 << 16

var (
	active      int
	reached     [maxMutants]atomic.Bool
	reachedMu   sync.Mutex
	reachedFile *os.File
)

func init() {
	active, _ = strconv.Atoi(os.Getenv(ActiveVariable))
	name := os.Getenv(ReachedVariable)
	if name == "" {
		return
	}
	var err error
	reachedFile, err = os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
}

// On reports whether mutation n is to be made. The code asks only where the
// mutation makes a difference.
func On(n int) bool {
	if reachedFile != nil && !reached[n].Swap(true) {
		record(n)
	}
	return n == active
}

func record(n int) {
	reachedMu.Lock()
	defer reachedMu.Unlock()
	if _, err := fmt.Fprintln(reachedFile, n); err != nil {
		panic(err)
	}
}

type number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

// Next returns v, or v+1 if mutation n is to be made.
func Next[T number](n int, v T) T {
	if On(n) {
		return v + 1
	}
	return v
}

// Previous returns v, or v-1 if mutation n is to be made.
func Previous[T number](n int, v T) T {
	if On(n) {
		return v - 1
	}
	return v
}

// Double returns v, or twice v if mutation n is to be made.
func Double[T number](n int, v T) T {
	if On(n) {
		return v * 2
	}
	return v
}

// Half returns v, or half of v if mutation n is to be made.
func Half[T number](n int, v T) T {
	if On(n) {
		return v / 2
	}
	return v
}

// Zero returns v, or the zero value if mutation n is to be made.
func Zero[T any](n int, v T) T {
	if !reflect.ValueOf(&v).Elem().IsZero() && On(n) {
		return *new(T)
	}
	return v
}

// Less returns a < b, or a <= b if mutation n is to be made.
func Less[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && On(n) }

// AtMost returns a <= b, or a < b if mutation n is to be made.
func AtMost[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && !On(n) }

// More returns a > b, or a >= b if mutation n is to be made.
func More[T cmp.Ordered](n int, a, b T) bool { return a > b || a == b && On(n) }

// AtLeast returns a >= b, or a > b if mutation n is to be made.
func AtLeast[T cmp.Ordered](n int, a, b T) bool { return a > b || a == b && !On(n) }

// Sum returns a+b, or a-b if mutation n is to be made.
func Sum[T number](n int, a, b T) T {
	if b != 0 && On(n) {
		return a - b
	}
	return a + b
}

// Difference returns a-b, or a+b if mutation n is to be made.
func Difference[T number](n int, a, b T) T {
	if b != 0 && On(n) {
		return a + b
	}
	return a - b
}

// Product returns a*b, or a/b if mutation n is to be made.
func Product[T number](n int, a, b T) T {
	if b != 1 && On(n) {
		return a / b
	}
	return a * b
}

// Quotient returns a/b, or a*b if mutation n is to be made.
func Quotient[T number](n int, a, b T) T {
	if b != 1 && On(n) {
		return a * b
	}
	return a / b
}
