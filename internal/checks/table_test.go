package checks

import "strings"

const module = "github.com/secondrun/secondrun"

// row declares a package, or with "/..." all below a directory.
type row struct {
	name    string   // below the module's path
	imports []string // packages of this module that it may import directly
	modules []string // modules of others that its users link, all of them
	tool    bool     // a program, or not for users: imports and modules are free
}

// What the packages link of others. Each module is explained in
// DEPENDENCIES.md.
var (
	avroAPI  = []string{"github.com/twmb/avro"}
	none     []string
	jsonAPI  = []string{"github.com/go-json-experiment/json"}
	protoAPI = []string{"google.golang.org/protobuf"}
	textAPI  = []string{"golang.org/x/text"}
	otelAPI  = []string{
		"github.com/go-logr/logr",
		"github.com/go-logr/stdr",
		"go.opentelemetry.io/auto/sdk",
		"go.opentelemetry.io/otel",
		"go.opentelemetry.io/otel/metric",
		"go.opentelemetry.io/otel/trace",
	}
	awsAPI = []string{
		"github.com/aws/aws-sdk-go-v2",
		"github.com/aws/aws-sdk-go-v2/internal/configsources",
		"github.com/aws/aws-sdk-go-v2/internal/endpoints/v2",
		"github.com/aws/aws-sdk-go-v2/service/sqs",
		"github.com/aws/smithy-go",
	}
	lambdaAPI = []string{"github.com/aws/aws-lambda-go"}
	pgxAPI    = []string{
		"github.com/jackc/pgpassfile",
		"github.com/jackc/pgservicefile",
		"github.com/jackc/pgx/v5",
		"github.com/jackc/puddle/v2",
		"golang.org/x/sync",
		"golang.org/x/text",
	}
	redisAPI = []string{
		"github.com/cespare/xxhash/v2",
		"github.com/dgryski/go-rendezvous",
		"github.com/redis/go-redis/v9",
	}
	sqliteAPI = []string{
		"github.com/dustin/go-humanize",
		"github.com/google/uuid",
		"github.com/remyoudompheng/bigfft",
		"golang.org/x/sys",
		"modernc.org/libc",
		"modernc.org/mathutil",
		"modernc.org/memory",
		"modernc.org/sqlite",
	}
)

// core may link the standard library and these modules only.
var core = map[string][]string{
	"store":           none,
	"store/rules":     none,
	"store/storetest": none,
	"keyfn":           jsonAPI,
	"middleware":      all(otelAPI, jsonAPI),
}

// table is every package of the module. Arrows point one way: adapters to
// middleware, keyfn and the types of store; middleware to keyfn and store;
// stores to store and store/rules; keyfn to nothing. An adapter imports neither
// another adapter nor a store.
var table = []row{
	{name: "store"},
	{name: "store/rules", imports: []string{"store"}},
	{name: "keyfn", modules: jsonAPI},
	{name: "keyfn/avrokey", imports: []string{"keyfn", "keyfn/framing"}, modules: all(jsonAPI, avroAPI)},
	{name: "keyfn/awskey", imports: []string{"keyfn"}, modules: jsonAPI},
	{name: "keyfn/cdckey", imports: []string{"keyfn"}, modules: jsonAPI},
	{name: "keyfn/cekey", imports: []string{"keyfn"}, modules: jsonAPI},
	{name: "keyfn/framing", imports: []string{"keyfn"}, modules: jsonAPI},
	{name: "keyfn/internal/...", tool: true},
	{name: "keyfn/keyfntest", imports: []string{"keyfn"}, modules: jsonAPI},
	{name: "keyfn/protokey", imports: []string{"keyfn", "keyfn/framing"}, modules: all(jsonAPI, protoAPI)},
	{name: "keyfn/taskkey", imports: []string{"keyfn"}, modules: jsonAPI},
	{name: "keyfn/unicodekey", imports: []string{"keyfn"}, modules: all(jsonAPI, textAPI)},
	{name: "keyfn/webhookkey", imports: []string{"keyfn"}, modules: jsonAPI},
	{name: "middleware", imports: []string{"keyfn", "store"}, modules: all(otelAPI, jsonAPI)},

	{name: "middleware/protocodec", modules: protoAPI},

	{name: "store/storetest", imports: []string{"store", "store/rules"}},
	{name: "store/storetest/seeded", imports: []string{"store", "store/rules"}},
	{name: "store/memstore", imports: []string{"store", "store/rules"}},
	{name: "store/pgstore", imports: []string{"store", "store/rules"}, modules: pgxAPI},
	{name: "store/redisstore", imports: []string{"store", "store/rules"}, modules: redisAPI},
	{name: "store/sqlitestore", imports: []string{"store", "store/rules"}, modules: sqliteAPI},

	{name: "adapters/sqs", imports: []string{"keyfn", "middleware", "store"}, modules: all(awsAPI, otelAPI, jsonAPI)},
	{name: "adapters/sqs/sqslambda", imports: []string{"adapters/sqs", "keyfn", "middleware"}, modules: all(awsAPI, lambdaAPI, otelAPI, jsonAPI)},
	{name: "adapters/sqs/sqstest", modules: awsAPI},
	{name: "adapters/sqs/sqstest/conformance", tool: true},
	{name: "adapters/sqs/sqstest/sqsd", tool: true},

	{name: "examples/...", tool: true},
	{name: "internal/...", tool: true},
	{name: "scripts/...", tool: true},
}

func all(lists ...[]string) []string {
	var modules []string
	for _, l := range lists {
		modules = append(modules, l...)
	}
	return modules
}

// declared returns the row of a package: its own, or the longest that ends in
// "/..." and fits.
func declared(table []row, name string) (row, bool) {
	var best row
	found := false
	for _, r := range table {
		if r.name == name {
			return r, true
		}
		prefix, ok := strings.CutSuffix(r.name, "...")
		if ok && strings.HasPrefix(name, prefix) && len(r.name) > len(best.name) {
			best, found = r, true
		}
	}
	return best, found
}
