// Uses a schema registry by Confluent's Go client and its serializers, and prints what it saw as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/avrov2"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/jsonschema"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/protobuf"
	"google.golang.org/protobuf/types/known/apipb"
)

type order struct {
	ID   int64  `json:"id" avro:"id"`
	Note string `json:"note" avro:"note"`
}

// there and back by a serializer of each kind
func serializers(client schemaregistry.Client, topic string, found map[string]any) {
	value := order{ID: 7, Note: "x"}
	write, err := avrov2.NewSerializer(client, serde.ValueSerde, avrov2.NewSerializerConfig())
	check(err)
	data, err := write.Serialize(topic+"-avro", &value)
	check(err)
	read, err := avrov2.NewDeserializer(client, serde.ValueSerde, avrov2.NewDeserializerConfig())
	check(err)
	var back order
	check(read.DeserializeInto(topic+"-avro", data, &back))
	found["avro"] = back == value

	writeJSON, err := jsonschema.NewSerializer(client, serde.ValueSerde, jsonschema.NewSerializerConfig())
	check(err)
	data, err = writeJSON.Serialize(topic+"-json", &value)
	check(err)
	readJSON, err := jsonschema.NewDeserializer(client, serde.ValueSerde, jsonschema.NewDeserializerConfig())
	check(err)
	back = order{}
	check(readJSON.DeserializeInto(topic+"-json", data, &back))
	found["json"] = back == value

	message := &apipb.Mixin{Name: "m", Root: "r"}
	writeProto, err := protobuf.NewSerializer(client, serde.ValueSerde, protobuf.NewSerializerConfig())
	check(err)
	data, err = writeProto.Serialize(topic+"-proto", message)
	check(err)
	readProto, err := protobuf.NewDeserializer(client, serde.ValueSerde, protobuf.NewDeserializerConfig())
	check(err)
	check(readProto.ProtoRegistry.RegisterMessage(message.ProtoReflect().Type()))
	again, err := readProto.Deserialize(topic+"-proto", data)
	check(err)
	found["protobuf"] = again.(*apipb.Mixin).Name == "m"
}

const record = `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}%s]}`

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func avro(more string) schemaregistry.SchemaInfo {
	return schemaregistry.SchemaInfo{Schema: fmt.Sprintf(record, more), SchemaType: "AVRO"}
}

func main() {
	url, subject := os.Args[1], os.Args[2]
	client, err := schemaregistry.NewClient(schemaregistry.NewConfig(url))
	check(err)
	found := map[string]any{}
	first, err := client.Register(subject, avro(""), false)
	check(err)
	second, err := client.Register(subject, avro(`,{"name":"b","type":"int","default":1}`), true)
	check(err)
	found["distinct"] = first != second
	shown, err := client.GetBySubjectAndID(subject, second)
	check(err)
	found["schema"] = shown.Schema
	version, err := client.GetVersion(subject, avro(""), false)
	check(err)
	found["version"] = version
	latest, err := client.GetLatestSchemaMetadata(subject)
	check(err)
	found["latest"] = latest.Version
	fits, err := client.TestSubjectCompatibility(subject, avro(`,{"name":"c","type":"int"}`))
	check(err)
	found["fits"] = fits
	_, err = client.Register(subject, avro(`,{"name":"c","type":"int"}`), false)
	found["refused"] = err != nil
	level, err := client.UpdateCompatibility(subject, schemaregistry.Full)
	check(err)
	found["level"] = level.String()
	versions, err := client.GetAllVersions(subject)
	check(err)
	found["versions"] = versions
	subjects, err := client.GetAllSubjects()
	check(err)
	found["subjects"] = len(subjects)
	contexts, err := client.GetAllContexts()
	check(err)
	found["contexts"] = contexts
	deleted, err := client.DeleteSubject(subject, false)
	check(err)
	found["deleted"] = deleted
	serializers(client, subject, found)
	check(json.NewEncoder(os.Stdout).Encode(found))
}
