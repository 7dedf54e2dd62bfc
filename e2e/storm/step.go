package main

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// step is one thing that happens: an operation of a user, or a fault. It is a value that is written as a line of
// text, read again, and done again.
//
//	+300ms create-source home/settings content=small%3A7&label.mirror=true
//	^gap   ^kind         ^on           ^args
type step struct {
	gap  time.Duration // since the beginning of the step before
	kind string        // a key of operations or of faults
	on   string        // a ConfigMap, a namespace, a replica, "leader", "*" for all of them, or "-"
	args url.Values
}

func (s step) String() string {
	return strings.TrimSpace(fmt.Sprintf("+%s %s %s %s", s.gap, s.kind, s.on, s.args.Encode()))
}

func parseStep(line string) (s step, err error) {
	fields := strings.Fields(line)
	if len(fields) < 3 || len(fields) > 4 || !strings.HasPrefix(fields[0], "+") {
		return s, fmt.Errorf("step %q: want +GAP KIND ON [ARGS]", line)
	}
	s.kind, s.on = fields[1], fields[2]
	if operations[s.kind] == nil && faults[s.kind] == nil {
		return s, fmt.Errorf("step %q: there is no kind %q", line, s.kind)
	}
	if s.gap, err = time.ParseDuration(fields[0][1:]); err != nil {
		return s, fmt.Errorf("step %q: %w", line, err)
	}
	if s.args, err = url.ParseQuery(strings.Join(fields[3:], "")); err != nil {
		return s, fmt.Errorf("step %q: %w", line, err)
	}
	return s, nil
}

// duration returns an argument that is one; 0 if it is not there.
func (s step) duration(arg string) time.Duration {
	d, _ := time.ParseDuration(s.args.Get(arg))
	return d
}

// round is a number of steps after which all has to become quiet.
type round struct {
	// calm is set if nothing else happens beside each step, and the time of quiet need not be awaited: for what is
	// determined only then, and for what has to be there before a storm.
	calm   bool
	steps  []step
	number int // of those that follow from the seed, or that are in the file
}

// Lines that begin a round.
const (
	calmHeader  = "calm:"
	stormHeader = "storm:"
)

func writeRounds(w io.Writer, rounds []round) error {
	for _, r := range rounds {
		header := stormHeader
		if r.calm {
			header = calmHeader
		}
		if _, err := fmt.Fprintln(w, header); err != nil {
			return err
		}
		for _, s := range r.steps {
			if _, err := fmt.Fprintln(w, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// readRounds reads what writeRounds has written. Empty lines, and those that begin with '#', are passed over.
func readRounds(r io.Reader) ([]round, error) {
	var rounds []round
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		switch line := strings.TrimSpace(lines.Text()); {
		case line == "" || line[0] == '#':
		case line == calmHeader || line == stormHeader:
			rounds = append(rounds, round{calm: line == calmHeader})
		case len(rounds) == 0:
			return nil, fmt.Errorf("%q: want %q or %q before the first step", line, calmHeader, stormHeader)
		default:
			s, err := parseStep(line)
			if err != nil {
				return nil, err
			}
			last := &rounds[len(rounds)-1]
			last.steps = append(last.steps, s)
		}
	}
	return rounds, lines.Err()
}
