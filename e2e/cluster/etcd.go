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

// Compact has etcd forget every revision but the last. Watches and lists that go on from an older one, and are not
// served from the API server's cache, are then told that it has expired (410).
func (c *Cluster) Compact(ctx context.Context) error {
	last, err := c.revision(ctx)
	if err != nil {
		return err
	}
	return c.etcd(ctx, "kv/compaction", map[string]any{"revision": last, "physical": true}, nil)
}

// revision returns etcd's last revision.
func (c *Cluster) revision(ctx context.Context) (int64, error) {
	var last struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	// Any read tells the revision: this one asks how many keys there are that are a zero byte.
	err := c.etcd(ctx, "kv/range", map[string]any{"key": []byte{0}, "count_only": true}, &last)
	return last.Header.Revision, err
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
	last, err := c.revision(ctx)
	if err != nil {
		return err
	}
	c.manager.stop()
	if err := errors.Join(c.StopAPIServer(), c.plane.Etcd.Stop()); err != nil {
		return err
	}
	away()
	dir := c.plane.Etcd.DataDir
	err = errors.Join(removeAll(filepath.Join(dir, "*")), os.CopyFS(dir, os.DirFS(from)), c.plane.Etcd.Start())
	if err != nil {
		return err
	}
	if goOn {
		for now := int64(0); now <= last; {
			if err := c.etcd(ctx, "kv/put", map[string]any{"key": []byte("revision")}, nil); err != nil {
				return err
			}
			if now, err = c.revision(ctx); err != nil {
				return err
			}
		}
		if err := c.Compact(ctx); err != nil {
			return err
		}
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	return c.startManager()
}

// Stored is a revision of etcd: what the API server has stored under a key, or that it has deleted it.
type Stored struct {
	Key      string
	Value    []byte // in protobuf; nil: deleted
	Revision int64  // the resourceVersion of the object that begins with it
}

// Follow calls take with every revision of the keys with that prefix since the first one of the cluster, in order,
// until ctx ends. It misses none, also while there is no API server. etcd must not have forgotten any before.
func (c *Cluster) Follow(ctx context.Context, prefix string, take func(Stored)) error {
	end := []byte(prefix)
	end[len(end)-1]++
	body, err := c.ask(ctx, "watch", map[string]any{"create_request": map[string]any{
		"key": []byte(prefix), "range_end": end, "start_revision": 1,
	}})
	if err != nil {
		return err
	}
	defer body.Close()
	for answers := json.NewDecoder(body); ; {
		var answer struct {
			Result struct {
				CancelReason string `json:"cancel_reason"`
				Events       []struct {
					Type string
					KV   struct {
						Key, Value []byte
						Revision   int64 `json:"mod_revision,string"`
					}
				}
			}
		}
		if err := answers.Decode(&answer); err != nil {
			return fmt.Errorf("etcd watch: %w", err)
		}
		if reason := answer.Result.CancelReason; reason != "" {
			return fmt.Errorf("etcd watch: %s", reason)
		}
		for _, e := range answer.Result.Events {
			take(Stored{string(e.KV.Key), e.KV.Value, e.KV.Revision})
		}
	}
}

// etcd calls a method of etcd and decodes the answer where out is not nil.
func (c *Cluster) etcd(ctx context.Context, method string, in, out any) error {
	body, err := c.ask(ctx, method, in)
	if err != nil {
		return err
	}
	defer body.Close()
	answer, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", method, err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// ask calls a method of etcd through its JSON gateway, which spares us its client, and returns the answer.
func (c *Cluster) ask(ctx context.Context, method string, in any) (io.ReadCloser, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	target := c.plane.Etcd.URL.JoinPath("v3", method).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", method, err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		answer, _ := io.ReadAll(response.Body) // it only says more
		return nil, fmt.Errorf("etcd %s: %s: %s", method, response.Status, bytes.TrimSpace(answer))
	}
	return response.Body, nil
}
