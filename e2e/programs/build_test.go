package programs

import "testing"

// TestControllerManager builds ours for tests of the newest version alone.
func TestControllerManager(t *testing.T) {
	for _, row := range []struct {
		name, minor string
		measured    bool
		want        string
	}{
		{"newest", "", false, ControllerManager},
		{"older", "1.36", false, KubeControllerManager},
		{"measured", "", true, KubeControllerManager},
	} {
		t.Run(row.name, func(t *testing.T) {
			m, err := findModule(row.minor)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.program(ControllerManager, row.measured); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			if got := m.program(APIServer, row.measured); got != APIServer {
				t.Errorf("got %s, want %s", got, APIServer)
			}
		})
	}
}
