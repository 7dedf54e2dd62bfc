// Package contract shows what the controller does to sources, copies and namespaces. The cases by which controllers of this kind
// break are found by their number, TestC17…: e2e/CASES.md lists them all.
package contract

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
