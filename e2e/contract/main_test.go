// Package contract shows of the contract what only a real API server can: that it takes each write, refuses what its
// preconditions, its admission and its limits refuse, and what the process costs that runs beside it. The rest is
// proved in virtual time, in package mirror. e2e/CASES.md lists where.
package contract

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
