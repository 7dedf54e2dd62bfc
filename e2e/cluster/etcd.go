package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
)

// header is what each answer of etcd begins with: its last revision.
type header struct {
	Header struct {
		Revision int64 `json:"revision,string"`
	} `json:"header"`
}

// Backup copies etcd's disk to a new folder, while etcd stands still.
func (c *Cluster) Backup(to string) error {
	if err := c.Signal(Etcd, syscall.SIGSTOP); err != nil {
		return err
	}
	return errors.Join(os.CopyFS(to, os.DirFS(c.plane.Etcd.DataDir)), c.Signal(Etcd, syscall.SIGCONT))
}

// Restore puts a backup in the place of what etcd holds. Meanwhile it stops the API server and the controller manager,
// and runs what is to be done while they are away. Revisions go back, or go on behind the last one if goOn is set: as
// `etcdutl snapshot restore --bump-revision --mark-compacted` has it, every watch is then told that its revision has
// expired.
func (c *Cluster) Restore(ctx context.Context, from string, goOn bool, away func()) error {
	var last, now header
	// Any read tells the revision: this one asks how many keys there are that are a zero byte.
	if err := c.etcd(ctx, "kv/range", map[string]any{"key": []byte{0}, "count_only": true}, &last); err != nil {
		return err
	}
	c.stopManager()
	if err := errors.Join(c.StopAPIServer(), c.plane.Etcd.Stop()); err != nil {
		return err
	}
	away()
	dir := c.plane.Etcd.DataDir
	err := errors.Join(removeAll(filepath.Join(dir, "*")), os.CopyFS(dir, os.DirFS(from)), c.plane.Etcd.Start())
	if err != nil {
		return err
	}
	if goOn {
		for now.Header.Revision <= last.Header.Revision {
			if err := c.etcd(ctx, "kv/put", map[string]any{"key": []byte("revision")}, &now); err != nil {
				return err
			}
		}
		compaction := map[string]any{"revision": now.Header.Revision, "physical": true}
		if err := c.etcd(ctx, "kv/compaction", compaction, &now); err != nil {
			return err
		}
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	return c.startManager()
}

// Stored returns what the API server stored under a key with a revision, in protobuf. It is an error if it stored
// nothing there with just this revision, or if etcd has forgotten it: see Options.Recorded.
func (c *Cluster) Stored(ctx context.Context, key, revision string) ([]byte, error) {
	var answer struct {
		KVs []struct {
			Value    []byte
			Revision string `json:"mod_revision"`
		}
	}
	if err := c.etcd(ctx, "kv/range", map[string]any{"key": []byte(key), "revision": revision}, &answer); err != nil {
		return nil, err
	}
	if len(answer.KVs) == 0 || answer.KVs[0].Revision != revision {
		return nil, fmt.Errorf("%s never had the state %s", key, revision)
	}
	return answer.KVs[0].Value, nil
}

// Corrupt puts a value under a key of etcd that the API server cannot decode, and
// returns what removes it.
func (c *Cluster) Corrupt(ctx context.Context, key string) (heal func() error, err error) {
	var now header
	err = c.etcd(ctx, "kv/put", map[string]any{"key": []byte(key), "value": []byte("not an object")}, &now)
	return func() error {
		return c.etcd(ctx, "kv/deleterange", map[string]any{"key": []byte(key)}, &now)
	}, err
}

// etcd calls a method of etcd through its JSON gateway, which spares us its client, and decodes its answer.
func (c *Cluster) etcd(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	target := c.plane.Etcd.URL.JoinPath("v3", method).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s: %s: %w", method, response.Status, answer, err)
	}
	return json.Unmarshal(answer, out)
}
