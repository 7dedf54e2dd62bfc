package main

import (
	"errors"
	"testing"
)

func TestClientConfig(t *testing.T) {
	outsideOfAnyCluster(t)
	kubeconfig := "--kubeconfig=" + writeKubeconfig(t, "one", "https://one.example")
	for _, test := range []struct {
		name  string
		args  []string
		host  string
		qps   float32
		burst int
	}{
		{"no throttle by default", nil, "https://one.example", -1, 0},
		{"other context", []string{"--context=two"}, "https://two.example", -1, 0},
		{"rate below one", []string{"--kube-api-qps=0.5"}, "https://one.example", 0.5, 1},
		{"rate and burst", []string{"--kube-api-qps=20", "--kube-api-burst=30"}, "https://one.example", 20, 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := newOptions()
			invalid, err := parse(combine(opts.bind()), append(test.args, kubeconfig))
			noError(t, errors.Join(invalid, err))
			config, err := opts.clientConfig()
			noError(t, err)
			if config.Host != test.host || config.QPS != test.qps || config.Burst != test.burst {
				t.Errorf("host %s, QPS %v, burst %d, want %s, %v, %d",
					config.Host, config.QPS, config.Burst, test.host, test.qps, test.burst)
			}
			if config.UserAgent != "mirror-controller/"+version()+" instance/default" {
				t.Errorf("user agent %q", config.UserAgent)
			}
			const protobuf = "application/vnd.kubernetes.protobuf"
			if config.ContentType != protobuf || config.AcceptContentTypes != protobuf+",application/json" {
				t.Errorf("sends %q, accepts %q, want protobuf, and JSON behind it", config.ContentType, config.AcceptContentTypes)
			}
			if !config.DisableCompression {
				t.Error("has the API server compress each event")
			}
		})
	}
}

func TestWrongKubeconfig(t *testing.T) {
	outsideOfAnyCluster(t)
	good := writeKubeconfig(t, "one", "https://one.example")
	none := writeKubeconfig(t, "", "https://one.example")
	lost := writeKubeconfig(t, "gone", "https://one.example")
	noServer := writeKubeconfig(t, "one", "")
	pod := writeFile(t, "pod", "apiVersion: v1\nkind: Pod\n")
	noCA := writeFile(t, "no-ca", `
current-context: one
contexts: [{name: one, context: {cluster: one}}]
clusters: [{name: one, cluster: {server: "https://one.example", certificate-authority-data: bm90IGEgY2VydGlmaWNhdGU=}}]
`)
	for _, test := range []struct {
		name, variable string
		args           []string
		want           string // see expectRefused
	}{
		{"is something else", "", []string{"--kubeconfig=" + pod}, `--kubeconfig="` + pod + `": ` + pod +
			" is not a kubeconfig: "},
		{"has no such context", "", []string{"--kubeconfig=" + good, "--context=three"},
			`--context="three": no such context, must be one of: one, two`},
		{"has no current context", "", []string{"--kubeconfig=" + none},
			`--kubeconfig="` + none + `": has no current-context: give --context, one of: one, two`},
		{"has lost its current context", "", []string{"--kubeconfig=" + lost},
			`--kubeconfig="` + lost + `": current-context "gone": no such context, must be one of: one, two`},
		{"names no server", "", []string{"--kubeconfig=" + noServer}, `--kubeconfig="` + noServer + `": context "one": `},
		{"has a broken certificate", "", []string{"--kubeconfig=" + noCA}, `--kubeconfig="` + noCA + `": `},
		{"variable names a file that does not exist", "/no/such/file", nil,
			`$KUBECONFIG="/no/such/file": cannot read /no/such/file: no such file or directory`},
		{"variable names nothing", ":", nil,
			`$KUBECONFIG=":": has no contexts: give a kubeconfig with clusters, users and contexts`},
		{"context without a kubeconfig", "", []string{"--context=one"},
			`--context="one": needs a kubeconfig: give --kubeconfig, or set $KUBECONFIG`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.variable)
			expectRefused(t, append(test.args, "--namespace-prefix=team-"), test.want)
		})
	}
}
