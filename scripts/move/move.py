"""Moves and merges modules of nlpctl by map.txt; rewrites imports, dotted names and paths everywhere. Usage: move.py ROOT [--dry]"""
import ast, collections, pathlib, re, subprocess, sys, textwrap
ROOT=pathlib.Path(sys.argv[1]); PKG=ROOT/'nlpctl'
MAP='scripts/move/map.txt'; REN='scripts/move/renames.txt'; DOC='scripts/move/packages.txt'
def path(mod): return ROOT/('/'.join(mod.split('.'))+'.py')
def modname(p):
    q=p.relative_to(ROOT).with_suffix('').parts
    return '.'.join(q[:-1] if q[-1]=='__init__' else q)
MODULES={modname(p):p for p in sorted(PKG.rglob('*.py'))}
groups={}; new_of={}
for line in open(MAP):
    line=line.split('#')[0].strip()
    if not line: continue
    new,olds=line.split('<-'); new='nlpctl.'+new.strip(); olds=['nlpctl.'+o for o in olds.split()]
    for o in olds:
        if o not in MODULES: print('MISSING',o); continue
        assert o not in new_of,o
        new_of[o]=new
    groups[new]=[o for o in olds if o in MODULES]
for m,p in MODULES.items():
    if m not in new_of and p.name!='__init__.py':
        new_of[m]=m
        groups.setdefault(m,[])
        assert not groups[m], ('stays but taken',m)
        groups[m]=[m]
renames={}  # (old module, name) -> new name
for line in open(REN):
    line=line.split('#')[0].strip()
    if line:
        m,n,k=line.split(); renames['nlpctl.'+m,n]=k
PACKAGES={m for m,p in MODULES.items() if p.name=='__init__.py'}

class Edit:
    def __init__(s,text): s.lines=text.splitlines(keepends=True); s.off=[0]; s.text=text; s.edits=[]
    # ast col offsets are utf8 bytes
    def pos(s,line,col):
        l=s.lines[line-1]; return sum(len(x) for x in s.lines[:line-1])+len(l.encode()[:col].decode())
    def rep(s,a,b,new): s.edits.append((a,b,new))
    def node(s,n,new): s.rep(s.pos(n.lineno,n.col_offset),s.pos(n.end_lineno,n.end_col_offset),new)
    def out(s):
        t=s.text
        for a,b,new in sorted(s.edits,key=lambda e:(e[0],e[1]),reverse=True): t=t[:a]+new+t[b:]
        return t

def bound(fn):
    """Names bound in a function scope (args, stores), without nested scopes."""
    b=set(); g=set()
    if isinstance(fn,(ast.FunctionDef,ast.AsyncFunctionDef,ast.Lambda)):
        a=fn.args
        for x in a.posonlyargs+a.args+a.kwonlyargs+[y for y in (a.vararg,a.kwarg) if y]: b.add(x.arg)
    def v(n,top=False):
        if not top and isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): b.add(n.name); return
        if not top and isinstance(n,ast.Lambda): return
        if isinstance(n,ast.Name) and isinstance(n.ctx,(ast.Store,ast.Del)): b.add(n.id)
        if isinstance(n,ast.Global): g.update(n.names)
        if isinstance(n,ast.ExceptHandler) and n.name: b.add(n.name)
        if isinstance(n,(ast.Import,ast.ImportFrom)): b.update((x.asname or x.name.split('.')[0]) for x in n.names if x.asname or (getattr(n,'module',None),x.name) not in renames)
        for c in ast.iter_child_nodes(n): v(c)
    v(fn,True)
    return b-g
def rename_uses(tree,ed,table):
    """Rename module-level names by table."""
    def v(n,hidden):
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)):
            for d in n.decorator_list: v(d,hidden)
            if n.name in table and n in tree.body:
                kw='class' if isinstance(n,ast.ClassDef) else 'def'
                line=ed.lines[n.lineno-1]; a=ed.pos(n.lineno,0); m=re.search(r'\b%s\s+%s\b'%(kw,n.name),line)
                s=a+m.end()-len(n.name); ed.rep(s,s+len(n.name),table[n.name])
        h=hidden
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.Lambda)): 
            if not isinstance(n,ast.Lambda):
                for a in [*n.args.defaults,*n.args.kw_defaults]:
                    if a: v(a,hidden)
                for a in n.args.posonlyargs+n.args.args+n.args.kwonlyargs+[y for y in (n.args.vararg,n.args.kwarg) if y]:
                    if a.annotation: v(a.annotation,hidden)
                if n.returns: v(n.returns,hidden)
                h=hidden|bound(n)
                for c in n.body: v(c,h)
                return
            h=hidden|bound(n)
        if isinstance(n,ast.ClassDef):
            for c in [*n.bases,*n.keywords]: v(c,hidden)
            cb=bound(n)  # class names visible only directly in body statements
            for c in n.body:
                if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef)): v(c,hidden)
                else: v(c,hidden|cb)
            return
        if isinstance(n,ast.Name) and n.id in table and n.id not in h: ed.node(n,table[n.id])
        if isinstance(n,ast.Constant) and isinstance(n.value,str): pass
        for c in ast.iter_child_nodes(n): v(c,h)
    for c in tree.body: v(c,frozenset())

def import_lines(n,indent,here=None):
    """New text of an ImportFrom node; names of the module `here` (new) are left out."""
    out=collections.OrderedDict()
    for a in n.names:
        full=f'{n.module}.{a.name}'
        if full in new_of and new_of[full]!=here or full in PACKAGES:
            t=new_of.get(full,full); pk,_,st=t.rpartition('.')
            asn=a.asname if a.asname else (a.name if st!=a.name else None)
            if full in PACKAGES: pk,st,asn=n.module,a.name,a.asname
            out.setdefault(pk,[]).append((st,asn if asn!=st else None))
            if asn and asn!=st and not a.asname: print('ALIAS',here or '?',full,'as',asn)
        else:
            m=new_of.get(n.module,n.module)
            if m==here: 
                if a.asname: print('ASNAME inside merge',here,full,a.asname)
                continue
            nm=renames.get((n.module,a.name),a.name); asn=a.asname
            if nm!=a.name and not a.asname: print('RENAMED IMPORT',here or '?',full,nm)
            out.setdefault(m,[]).append((nm,asn if asn!=nm else None))
    res=[]
    for m,ns in out.items():
        m=m.replace('nlpctl','nlpctl__NEW',1)
        body=', '.join(x+(f' as {y}' if y else '') for x,y in ns)
        line=f'{indent}from {m} import {body}'
        if len(line)>118: line=f'{indent}from {m} import (\n'+''.join(f'{indent}    {x}{" as "+y if y else ""},\n' for x,y in ns)+f'{indent})'
        res.append(line)
    return res

DOT=re.compile(r'\bnlpctl(?:\.[A-Za-z_]\w*)+')
SL=re.compile(r'(?<![\w./-])(?:[\w.-]+/)*[\w-]+\.py\b')
SLD=re.compile(r'(?<![\w./-])nlpctl/(?:[\w-]+/)*')
oldrel={}
for m,p in MODULES.items():
    if m in new_of: oldrel[str(p.relative_to(PKG))]=str(path(new_of[m]).relative_to(PKG))
def texts(t):
    def dot(mm):
        parts=mm.group(0).split('.')
        for k in range(len(parts),1,-1):
            m='.'.join(parts[:k])
            if m in new_of:
                rest=parts[k:]
                if rest and (m,rest[0]) in renames: rest[0]=renames[m,rest[0]]
                return '.'.join([new_of[m],*rest])
        return mm.group(0)
    def frm(mm):
        n=ast.parse(mm.group(2)).body[0]; ls=import_lines(n,'')
        line=t[t.rfind('\n',0,mm.start())+1:mm.end()]
        one=';' in line or line.count('"')%2 or line.count("'")%2
        return mm.group(1)+('; ' if one else '\n'+mm.group(1)).join(' '.join(l.replace('(\n','').replace(',\n)','').split()) for l in ls)
    t=re.sub(r'((?:^[ \t]*)?)(from nlpctl(?:\.\w+)* import [A-Za-z_]\w*(?:, ?[A-Za-z_]\w*)*)',frm,t,flags=re.M)
    t=DOT.sub(dot,t)
    t=re.sub(r'(\bnlpctl(?:\.\w+)+):(\w+)',lambda m:m.group(0),t)
    def sl(mm):
        s=mm.group(0)
        if s.startswith('nlpctl/') and s[7:] in oldrel: return 'nlpctl/'+oldrel[s[7:]]
        if '/' in s and s in oldrel: return oldrel[s]
        return s
    return SL.sub(sl,t).replace('nlpctl__NEW','nlpctl')

import tokenize,io,functools
ORIG={m:p.read_text() for m,p in MODULES.items()}
@functools.cache
def imported_names(m):
    return {(a.asname or a.name):(n.module,a.name) for n in ast.walk(ast.parse(ORIG[m])) if isinstance(n,ast.ImportFrom) and n.module for a in n.names}
def renamed(m,name):
    if (m,name) in renames: return renames[m,name]
    src=imported_names(m).get(name)
    return renames.get(src) if src else None
def backticks(tree,ed,table):
    if not table: return
    rx=re.compile(r'`(%s)\b'%'|'.join(map(re.escape,table)))
    off=[0]
    for l in ed.lines: off.append(off[-1]+len(l))
    for tok in tokenize.generate_tokens(io.StringIO(ed.text).readline):
        if tok.type in (tokenize.STRING,tokenize.COMMENT):
            new=rx.sub(lambda m:'`'+table[m.group(1)],tok.string)
            if new!=tok.string: ed.rep(off[tok.start[0]-1]+tok.start[1],off[tok.end[0]-1]+tok.end[1],new)
def bare(text,s):
    pk=s.rpartition('.')[0]; here=new_of[s].rpartition('.')[0]
    def f(m):
        o=f'{pk}.{m.group(1)}'
        if o not in new_of or new_of[o]==o: return m.group(0)
        n=new_of[o]; p,_,st=n.rpartition('.')
        return st+'.py' if p==here else n.removeprefix('nlpctl.').replace('.','/')+'.py'
    return re.sub(r'(?<![\w./-])([a-z_0-9]+)\.py\b',f,text)
def rewrite_imports(text,here=None,table=None):
    tree=ast.parse(text); ed=Edit(text); table=dict(table or {})
    for n in ast.walk(tree):
        if isinstance(n,ast.ImportFrom):
            for a in n.names:
                if (n.module,a.name) in renames and not a.asname: table[a.name]=renames[n.module,a.name]
    if table: rename_uses(tree,ed,table)
    if table: backticks(tree,ed,table)
    alias={}
    for n in ast.walk(tree):
        if isinstance(n,ast.ImportFrom) and n.module and n.module.startswith('nlpctl'):
            for a in n.names:
                if f'{n.module}.{a.name}' in MODULES: alias[a.asname or a.name]=f'{n.module}.{a.name}'
    for n in ast.walk(tree):
        if isinstance(n,ast.Attribute) and isinstance(n.value,ast.Name) and n.value.id in alias and renamed(alias[n.value.id],n.attr):
            e=ed.pos(n.end_lineno,n.end_col_offset); ed.rep(e-len(n.attr),e,renamed(alias[n.value.id],n.attr))
        if isinstance(n,ast.Call) and isinstance(n.func,ast.Attribute) and n.func.attr=='setattr' and len(n.args)>2 and isinstance(n.args[0],ast.Name) and n.args[0].id in alias and isinstance(n.args[1],ast.Constant) and renamed(alias[n.args[0].id],n.args[1].value):
            ed.node(n.args[1],'"%s"'%renamed(alias[n.args[0].id],n.args[1].value))
    for n in ast.walk(tree):
        if isinstance(n,ast.ImportFrom) and n.module and n.module.split('.')[0]=='nlpctl':
            ind=re.match(r'\s*',ed.lines[n.lineno-1]).group(0)
            ls=import_lines(n,ind,here)
            a=ed.pos(n.lineno,n.col_offset); b=ed.pos(n.end_lineno,n.end_col_offset)
            # trailing comment kept
            new='\n'.join(ls)[len(ind):] if ls else 'pass  # MOVED' if True else ''
            ed.rep(a,b,new)
    return ed.out()

def split_source(text):
    """docstring, imports (text list), rest"""
    tree=ast.parse(text); lines=text.splitlines(keepends=True); drop=set(); imps=[]; doc=ast.get_docstring(tree,clean=False)
    tc=[]
    for i,n in enumerate(tree.body):
        rng=range(n.lineno-1,n.end_lineno)
        if i==0 and isinstance(n,ast.Expr) and isinstance(n.value,ast.Constant): drop.update(rng)
        elif isinstance(n,ast.ImportFrom) and n.module=='__future__': drop.update(rng)
        elif isinstance(n,(ast.Import,ast.ImportFrom)):
            imps.append(''.join(lines[j] for j in rng)); drop.update(rng)
        elif isinstance(n,ast.If) and ast.unparse(n.test)=='TYPE_CHECKING' and not n.orelse:
            tc.append(''.join(lines[j] for j in range(n.body[0].lineno-1,n.end_lineno))); drop.update(rng)
    rest=''.join(l for j,l in enumerate(lines) if j not in drop)
    return doc,imps,tc,rest.strip('\n')+'\n' if rest.strip() else ''

def toplevel(tree):
    names={}
    for n in tree.body:
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): names[n.name]=('def',n)
        elif isinstance(n,ast.Assign):
            for t in n.targets:
                for x in ast.walk(t):
                    if isinstance(x,ast.Name): names[x.id]=('var',n)
        elif isinstance(n,(ast.AnnAssign,ast.AugAssign)) and isinstance(n.target,ast.Name): names[n.target.id]=('var',n)
        elif isinstance(n,(ast.Import,ast.ImportFrom)):
            for a in n.names: names[a.asname or a.name.split('.')[0]]=('imp',(getattr(n,'module',None),a.name))
        elif isinstance(n,(ast.For,ast.With,ast.If)):
            for x in ast.walk(n):
                if isinstance(x,ast.Name) and isinstance(x.ctx,ast.Store): names.setdefault(x.id,('var',n))
    return names

def check_collisions(new,srcs):
    seen={}; bad=0
    for s in srcs:
        t=toplevel(ast.parse(MODULES[s].read_text()))
        for nm,(k,n) in t.items():
            nm2=renames.get((s,nm),nm)
            if k=='imp' and n in renames or k=='imp' and ('%s'%n[0],n[1]) in renames: nm2=renames[n[0],n[1]] if nm==n[1] else nm
            if nm2 in seen:
                o,k2,n2=seen[nm2]
                if k==k2=='imp':
                    same = n==n2 or nm in ('importlib',)
                elif 'imp' in (k,k2):
                    imp=n if k=='imp' else n2; owner=o if k=='imp' else s
                    same = imp[0]==owner
                else:
                    same = ast.dump(n)==ast.dump(n2)
                    if same: print(f'SAME {new[7:]}: {nm} in {o[7:]} and {s[7:]}'); dup.add((s,nm)); continue
                if not same: print(f'COLLISION {new[7:]}: {nm} ({k2}) {o[7:]} / ({k}) {s[7:]}'); bad+=1
            else: seen[nm2]=(s,k,n)
    return bad
dup=set()
def order(srcs):
    """topological by module-level imports and use"""
    dep={}
    for s in srcs:
        d=set()
        for n in ast.parse(MODULES[s].read_text()).body:
            if isinstance(n,ast.ImportFrom) and n.module in srcs: d.add(n.module)
            elif isinstance(n,ast.ImportFrom):
                d|={f'{n.module}.{a.name}' for a in n.names}&set(srcs)
        dep[s]=d-{s}
    out=[]; 
    # the lead comes as late as needed; others before their users
    def visit(s):
        for d in [x for x in srcs if x in dep[s]]:
            if d not in out: visit(d)
        if s not in out: out.append(s)
    for s in srcs: visit(s)
    return out

def main():
    bad=0
    for new,srcs in groups.items():
        if len(srcs)>1: bad+=check_collisions(new,srcs)
    if bad: print(bad,'collisions')
    if '--dry' in sys.argv: return
    assert not bad
    result={}
    for new,srcs in groups.items():
        if not srcs: continue
        if len(srcs)==1:
            s=srcs[0]; result[new]=rewrite_imports(bare(MODULES[s].read_text(),s),here=new,table={n:k for (m,n),k in renames.items() if m==s}); continue
        lead=srcs[0]; alldoc=None; imps=[]; tcs=[]; parts=[]
        for s in order(srcs):
            table={n:k for (m,n),k in renames.items() if m==s}
            t=bare(MODULES[s].read_text(),s)
            # names of siblings that were renamed: uses of the imported name follow
            tree=ast.parse(t)
            for n in ast.walk(tree):
                if isinstance(n,ast.ImportFrom) and n.module in srcs:
                    for a in n.names:
                        if (n.module,a.name) in renames: table[a.asname or a.name]=renames[n.module,a.name]
                        elif a.asname: table[a.asname]=a.name
            # attribute use of sibling modules
            for n in tree.body:
                if isinstance(n,ast.ImportFrom):
                    for a in n.names:
                        if f'{n.module}.{a.name}' in srcs: print('MODULE IMPORT inside merge',new,s,a.name)
            # drop duplicates
            ed=Edit(t)
            for n in tree.body:
                nm=getattr(n,'name',None) or (n.targets[0].id if isinstance(n,ast.Assign) and isinstance(n.targets[0],ast.Name) else None)
                if (s,nm) in dup: ed.node(n,'')
            t=ed.out()
            t=rewrite_imports(t,here=new,table=table)
            doc,i,tc,rest=split_source(t)
            imps+=i; tcs+=tc
            if s==lead: alldoc=doc
            sec=doc.strip() if s!=lead and doc else ''
            cm=''
            if sec:
                cm='\n'.join(('# '+l.strip() if len(l.strip())<117 else '# '+l.strip()) if l.strip() else '#' for l in textwrap.dedent(sec).splitlines())+'\n\n'
            parts.append(cm+rest)
        imps=[i for i in imps if 'pass  # MOVED' not in i]
        uniq=[]
        for i in imps:
            if i not in uniq: uniq.append(i)
        body='"""'+alldoc+'"""\n\nfrom __future__ import annotations\n\n'+''.join(uniq)
        tcs=[re.sub(r'^[ \t]*pass  # MOVED\n','',t,flags=re.M) for t in tcs]; tcs=[t for t in tcs if t.strip()]
        if tcs: body+='\nif TYPE_CHECKING:\n'+''.join(dict.fromkeys(tcs))
        body+='\n\n'+'\n\n'.join(p.strip('\n')+'\n' for p in parts if p.strip())
        body=re.sub(r'\n\n\n(?=[A-Z_]+(?:: [^=]+)? = )','\n\n',body,count=1)
        result[new]=body
    # write
    for new,srcs in groups.items():
        if srcs==[new]: continue
        for s in srcs:
            pass
    for s,p in list(MODULES.items()):
        if s in new_of and new_of[s]!=s: p.unlink()
    for new,t in result.items():
        t=re.sub(r'^[ \t]*pass  # MOVED\n','',t,flags=re.M)
        q=path(new); q.parent.mkdir(parents=True,exist_ok=True); q.write_text(texts(t))
    # inits
    docs={}
    for line in open(DOC):
        if line.strip():
            k,_,v=line.strip().partition(' '); docs[k]=v
    for k,v in docs.items():
        q=PKG/k.replace('.','/')/'__init__.py'
        if not q.exists() or k in ('inference','data','export'): q.write_text(f'"""{v}"""\n')
    # data files
    for a,b in (('static_graph/maps','convert/maps'),):
        if (PKG/a).exists(): ((PKG/b).parent.mkdir(parents=True,exist_ok=True),(PKG/a).rename(PKG/b))
    for p in sorted(PKG.rglob('__init__.py'),reverse=True):
        others=[x for x in p.parent.rglob('*') if x.is_file() and x.suffix in('.py','.yaml','.json') and x!=p and '__pycache__' not in x.parts]
        if not others: print('gone',p.relative_to(ROOT)); subprocess.run(['rm','-r',str(p.parent)])
        else: p.write_text(texts(rewrite_imports(p.read_text())))
    # others
    for base in ('tests','scripts','docs','recipes','configs','examples','.ci'):
        for p in (ROOT/base).rglob('*'):
            if not p.is_file() or '__pycache__' in p.parts: continue
            try: t=p.read_text()
            except Exception: continue
            o=t
            if p.suffix=='.py':
                try: t=rewrite_imports(t)
                except SyntaxError: pass
            t=texts(t)
            if t!=o: p.write_text(t)
    for n in ('README.md','README.zh-CN.md','CONTRIBUTING.md','pyproject.toml','mkdocs.yml','.pre-commit-config.yaml','CHANGELOG.md'):
        p=ROOT/n; t=p.read_text(); o=t
        t=texts(t)
        if t!=o: p.write_text(t)
main()
