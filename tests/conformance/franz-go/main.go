// Command franz-go runs one scenario of the Go client franz-go against a broker:
//
//	franz-go BOOTSTRAP SCENARIO TOPIC [ARGUMENT...]
//
// It prints one JSON document and exits with 0, or an error on standard error and 1. The expectations are in
// tests/conformance/test_conformance_franz.py; here is only what the client did and saw.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const deadline = 30 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// seen is a record as the tests compare it.
type seen struct {
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Key       string            `json:"key"`
	Value     string            `json:"value"`
	Headers   map[string]string `json:"headers"`
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: franz-go BOOTSTRAP SCENARIO TOPIC [ARGUMENT...]")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	result, err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bootstrap, scenario, topic string, args []string) (any, error) {
	switch scenario {
	case "produce":
		return produce(ctx, bootstrap, topic, args[0], args[1])
	case "consume":
		return consume(ctx, bootstrap, topic, args[0])
	case "group":
		return group(ctx, bootstrap, topic, args[0], args[1])
	case "two-members":
		return twoMembers(ctx, bootstrap, topic, args[0])
	case "admin":
		return admin(ctx, bootstrap, topic)
	case "group-admin":
		return groupAdmin(ctx, bootstrap, topic, args[0])
	}
	return nil, fmt.Errorf("unknown scenario %q", scenario)
}

// client makes a client with franz-go's defaults: idempotent, acks=all.
func client(bootstrap string, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.ClientID("franz-go")}, more...)...)
}

func produce(ctx context.Context, bootstrap, topic, codec, count string) (any, error) {
	cl, err := client(bootstrap, kgo.ProducerBatchCompression(codecs[codec]), kgo.AllowAutoTopicCreation())
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	n, err := strconv.Atoi(count)
	if err != nil {
		return nil, err
	}
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{
			Topic:   topic,
			Key:     []byte(fmt.Sprintf("key-%d", i)),
			Value:   []byte(fmt.Sprintf("value-%d", i)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(strconv.Itoa(i))}},
		}
	}
	results := cl.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]seen, 0, n)
	for _, r := range results {
		offsets = append(offsets, look(r.Record))
	}
	return offsets, nil
}

func consume(ctx context.Context, bootstrap, topic, count string) (any, error) {
	cl, err := client(bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return poll(ctx, cl, count)
}

func group(ctx context.Context, bootstrap, topic, name, count string) (any, error) {
	cl, err := member(bootstrap, topic, name)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	records, err := poll(ctx, cl, count)
	if err != nil {
		return nil, err
	}
	return records, cl.CommitUncommittedOffsets(ctx)
}

func member(bootstrap, topic, name string, more ...kgo.Opt) (*kgo.Client, error) {
	return client(bootstrap, append([]kgo.Opt{
		kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}, more...)...)
}

// poll fetches until it has count records.
func poll(ctx context.Context, cl *kgo.Client, count string) ([]seen, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return nil, err
	}
	found := []seen{}
	for len(found) < n {
		fetches := cl.PollRecords(ctx, n-len(found))
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, fmt.Errorf("after %d records: %s[%d]: %w", len(found), errs[0].Topic, errs[0].Partition, errs[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) { found = append(found, look(r)) })
	}
	return found, nil
}

func look(r *kgo.Record) seen {
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	return seen{r.Partition, r.Offset, string(r.Key), string(r.Value), headers}
}

// twoMembers waits until two members of a group (cooperative-sticky, franz-go's default) share the partitions,
// stops one, and waits until the other has them all. It says how many partitions each had while both lived.
func twoMembers(ctx context.Context, bootstrap, topic, name string) (any, error) {
	type change struct{ who, by int }
	changes := make(chan change, 64)
	start := func(who int) (*kgo.Client, error) {
		report := func(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
				changes <- change{who, sign * len(parts[topic])}
			}
		}
		cl, err := member(bootstrap, topic, name,
			kgo.OnPartitionsAssigned(report(1)), kgo.OnPartitionsRevoked(report(-1)), kgo.OnPartitionsLost(report(-1)))
		if err == nil {
			go func() {
				for !cl.PollFetches(ctx).IsClientClosed() && ctx.Err() == nil {
				}
			}()
		}
		return cl, err
	}
	var has [2]int
	until := func(reached func() bool) error {
		for !reached() {
			select {
			case c := <-changes:
				has[c.who] += c.by
			case <-ctx.Done():
				return fmt.Errorf("members have %v partitions: %w", has, ctx.Err())
			}
		}
		return nil
	}
	one, err := start(0)
	if err != nil {
		return nil, err
	}
	defer one.Close()
	if err := until(func() bool { return has[0] > 0 }); err != nil {
		return nil, err
	}
	alone := has[0]
	two, err := start(1)
	if err != nil {
		return nil, err
	}
	defer two.Close()
	if err := until(func() bool { return has[1] > 0 && has[0]+has[1] == alone }); err != nil {
		return nil, err
	}
	shared := has
	two.Close()
	err = until(func() bool { return has[0] == alone })
	return map[string]any{"alone": alone, "shared": shared, "after": has[0]}, err
}

// admin creates, describes, alters, lists and deletes a topic.
func admin(ctx context.Context, bootstrap, topic string) (any, error) {
	cl, err := client(bootstrap)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	out := map[string]any{}
	minute := "60000"
	if _, err := adm.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &minute}, topic); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	_, again := adm.CreateTopic(ctx, 3, 1, nil, topic)
	out["again"] = fmt.Sprint(again)
	if _, err := adm.CreatePartitions(ctx, 2, topic); err != nil {
		return nil, fmt.Errorf("create partitions: %w", err)
	}
	mb := "1048576"
	altered, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.bytes", Value: &mb}}, topic)
	if err != nil {
		return nil, fmt.Errorf("alter configs: %w", err)
	}
	for _, a := range altered {
		if a.Err != nil {
			return nil, fmt.Errorf("alter configs: %w", a.Err)
		}
	}
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("describe configs: %w", err)
	}
	changed := map[string]string{}
	for _, c := range configs[0].Configs {
		if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
			changed[c.Key] = c.MaybeValue()
		}
	}
	out["configs"] = changed
	listed, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	out["partitions"] = len(listed[topic].Partitions)
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	out["ends"] = len(ends[topic])
	meta, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	out["brokers"] = len(meta.Brokers)
	out["cluster"] = meta.Cluster
	if _, err := adm.DeleteTopic(ctx, topic); err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	_, gone := adm.DeleteTopic(ctx, topic)
	out["gone"] = fmt.Sprint(gone)
	return out, nil
}

// groupAdmin looks at a group that has committed, moves its offsets, and deletes it.
func groupAdmin(ctx context.Context, bootstrap, topic, name string) (any, error) {
	cl, err := client(bootstrap)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	out := map[string]any{}
	described, err := adm.DescribeGroups(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("describe: %w", err)
	}
	out["state"] = described[name].State
	lags, err := adm.Lag(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("lag: %w", err)
	}
	if err := lags.Error(); err != nil {
		return nil, fmt.Errorf("lag: %w", err)
	}
	out["lag"] = lags[name].Lag.Total()
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 1, -1)
	if err := adm.CommitAllOffsets(ctx, name, offsets); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	fetched, err := adm.FetchOffsets(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("fetch offsets: %w", err)
	}
	if o, ok := fetched.Lookup(topic, 0); ok {
		out["moved"] = o.At
	}
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	names := listed.Groups()
	sort.Strings(names)
	out["listed"] = names
	if _, err := adm.DeleteGroup(ctx, name); err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	_, gone := adm.DeleteGroup(ctx, name)
	out["gone"] = fmt.Sprint(gone)
	return out, nil
}
