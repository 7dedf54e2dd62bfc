// Package endless has a loop that a mutation has go on for ever.
package endless

// Sum returns the sum of the numbers up to n.
func Sum(n int) (sum int) {
	for n > 0 {
		sum += n
		n--
	}
	return sum
}
