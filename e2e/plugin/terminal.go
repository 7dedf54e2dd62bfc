package plugin

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// openTerminal returns the two sides of a new terminal.
func openTerminal(w *suite.World) (user, program *os.File) {
	w.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = user.Close() })
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		program, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = program.Close() })
	return user, program
}

// awaitText reads what a program says until it ends so.
func awaitText(w *suite.World, from io.Reader, end string) {
	w.Helper()
	var said strings.Builder
	for b := make([]byte, 1); !strings.HasSuffix(said.String(), end); said.Write(b) {
		if _, err := from.Read(b); err != nil {
			w.Fatalf("the program ended without %q: %s", end, said.String())
		}
	}
}
