// Package install follows the chart and the pages for users on a real API server, as a user does who installs the
// controller.
package install

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
