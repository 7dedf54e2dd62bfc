package plugin

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
