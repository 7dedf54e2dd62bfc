package main

import (
	"os"
	"strings"
	"testing"
)

func TestWrongFlags(t *testing.T) {
	outsideOfAnyCluster(t)
	if _, err := os.Stat(podNamespaceFile); err == nil {
		t.Skip("this is a pod, and what is said outside of one cannot be seen")
	}
	const prefixRequired = "--namespace-prefix: required and never empty: give a prefix of the names of the target " +
		"namespaces, or set --all-namespaces"
	const notAPrefix = "must be the beginning of a namespace name: lower-case letters, digits and '-', " +
		"with a letter or digit first"
	// Cases about other flags need a prefix.
	const prefix, lease = "--namespace-prefix=team-", "--leader-elect-lease-duration="

	for _, test := range []struct {
		name string
		args []string
		want []string
	}{
		{"no cluster but at home, and empty lists", []string{prefix, "--exclude-namespace=", "--copy-label="}, []string{
			"--kubeconfig: required outside a cluster: give a kubeconfig file, or set $KUBECONFIG"}},

		{"empty prefix", []string{"--namespace-prefix="}, []string{
			`--namespace-prefix="": must not be empty; to mirror into all namespaces, set --all-namespaces`}},
		{"prefix that is not a list", []string{`--namespace-prefix="team-`}, []string{
			`--namespace-prefix="\"team-": must be of type stringSlice ` +
				`(parse error on line 1, column 7: extraneous or missing " in quoted-field)`, prefixRequired}},

		{"unknown flag", []string{prefix, "--col\nour=red", "--concurrent-writes=0"}, []string{
			"unknown flag: --col our: --help lists the flags"}},
		{"a percentage to delete", []string{prefix, "--prune-limit=50%"},
			[]string{"unknown flag: --prune-limit: --help lists the flags"}},
		{"a preview", []string{prefix, "--dry-run"}, []string{"unknown flag: --dry-run: --help lists the flags"}},
		{"prune that is no boolean", []string{prefix, "--prune=50%"}, []string{
			`--prune="50%": must be of type bool (strconv.ParseBool: parsing "50%": invalid syntax)`}},

		{"a negative grace", []string{prefix, "--deletion-grace=-1s"}, []string{
			`--deletion-grace=-1s: must be between 0s and 24h, such as 5m`}},
		{"a grace of days", []string{prefix, "--deletion-grace=25h"}, []string{
			`--deletion-grace=25h0m0s: must be between 0s and 24h, such as 5m`}},
		{"rate that is no number", []string{prefix, "--kube-api-qps=NaN"}, []string{
			`--kube-api-qps="NaN": must be 0 (no limit) or more, such as 50`}},
		{"endless rate", []string{prefix, "--kube-api-qps=Inf"}, []string{
			`--kube-api-qps="+Inf": must be 0 (no limit) or more, such as 50`}},
		{"negative burst", []string{prefix, "--kube-api-qps=5", "--kube-api-burst=-1"}, []string{
			`--kube-api-burst="-1": must be 0 (the requests of one second) or more, such as 100`}},
		{"burst without a rate", []string{prefix, "--kube-api-burst=5"}, []string{
			`--kube-api-burst="5": has no effect without --kube-api-qps: give both or neither`}},
		{"log format", []string{prefix, "--logging-format=yaml"}, []string{`--logging-format="yaml": must be text or json`}},
		{"leader election outside a pod", []string{prefix, "--leader-elect", "--kubeconfig=/no/such/file"}, []string{
			"--leader-elect-resource-namespace: required with --leader-elect outside a pod: give the namespace of the Lease",
			`--kubeconfig="/no/such/file": cannot read /no/such/file: no such file or directory`}},
		{"lease of no whole seconds", []string{prefix, "--leader-elect-lease-duration=15500ms"}, []string{
			`--leader-elect-lease-duration="15.5s": must be 1s or more, in whole seconds, such as 15s`}},
		{"deadline plus retry period as long as the lease", []string{prefix, "--leader-elect-renew-deadline=13s"}, []string{
			`--leader-elect-lease-duration="15s": must be more than ` +
				`--leader-elect-renew-deadline=13s plus --leader-elect-retry-period=2s, such as 16s`}},
		{"lease too short", []string{prefix, lease + "10s", "--leader-elect-retry-period=500ms"}, []string{
			`--leader-elect-lease-duration="10s": must be more than ` +
				`--leader-elect-renew-deadline=10s plus --leader-elect-retry-period=500ms, such as 11s`}},
		{"no retry period", []string{prefix, "--leader-elect-retry-period=0s"}, []string{
			`--leader-elect-retry-period="0s": must be more than 0, such as 2s`}},
		{"no deadline", []string{prefix, "--leader-elect-renew-deadline=0s"}, []string{
			`--leader-elect-renew-deadline="0s": must be more than 0, such as 10s`}},
		{"retry period too long", []string{prefix, lease + "1m", "--leader-elect-retry-period=8.4s"}, []string{
			`--leader-elect-retry-period="8.4s": 1.2 times it must be less than ` +
				`--leader-elect-renew-deadline=10s, such as 2s`}},
		{"wrong name of a lease", []string{prefix, "--leader-elect-resource-name=My_Lease"}, []string{
			`--leader-elect-resource-name="My_Lease": must be the name of a Lease: lower-case letters, digits, '-' and '.'`}},
		{"wrong namespace of a lease", []string{prefix, "--leader-elect-resource-namespace=My_NS"}, []string{
			`--leader-elect-resource-namespace="My_NS": must be the name of a namespace`}},
		{"port alone", []string{prefix, "--health-probe-bind-address=8081"}, []string{
			`--health-probe-bind-address="8081": must be an address with a port, such as :8081 or 127.0.0.1:8081, or 0 (off)`}},

		{"all at once", []string{"--resync-period=soon", "--instance=", "--concurrent-writes=0", "-v=loud",
			"--namespace-prefix=Team-", "--namespace-prefix=team_", "here",
			"--kube-api-qps=-1", "--kubeconfig=/no/such/file"}, []string{
			`--resync-period="soon": must be a duration, such as 5m (time: invalid duration "soon")`,
			`-v="loud": must be of type Level (strconv.ParseUint: parsing "loud": invalid syntax)`,
			`"here": unexpected argument: only flags are allowed, written --flag=value`,
			`--namespace-prefix="Team-": ` + notAPrefix,
			`--namespace-prefix="team_": ` + notAPrefix,
			`--instance="": must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit`,
			"--concurrent-writes=0: must be 1 or more",
			`--kube-api-qps="-1": must be 0 (no limit) or more, such as 50`,
			`--kubeconfig="/no/such/file": cannot read /no/such/file: no such file or directory`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expectRefused(t, test.args, test.want...)
		})
	}
}

// TestFlagsInTheLog: the first line of the log names each flag that is not default.
func TestFlagsInTheLog(t *testing.T) {
	flags := newOptions().bind()
	_, err := parse(combine(flags), []string{"--namespace-prefix=team-", "--prune", "-v=2", "--resync-period=10m"})
	noError(t, err)
	if got, want := strings.Join(notDefault(flags), " "), "--namespace-prefix=[team-] --prune=true -v=2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
